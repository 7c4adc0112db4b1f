#include "detection/loader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "detection/anchors.hpp"

namespace shardmark::detection {
namespace {

constexpr std::int64_t kBlankSide = 32;

bool is_mirrored(const LoadKey& key, std::int64_t slot, double probability) {
  const auto place = static_cast<std::uint64_t>(key.first_slot + slot);
  const base::RandomStream stream(key.seed, "flip", base::hash_mix(static_cast<std::uint64_t>(key.step), place));
  return static_cast<double>(stream.uniform(0)) < probability;
}

/// The roundings of resize_boxes, and of mirror_boxes before it, in plain numbers.
bool keeps_sides(std::span<const float> box, ImageSize from, ImageSize to) {
  const float x = static_cast<float>(to.width) / static_cast<float>(from.width);
  const float y = static_cast<float>(to.height) / static_cast<float>(from.height);
  const auto width = static_cast<float>(from.width);
  const float mirrored[2] = {(width - box[2]) * x, (width - box[0]) * x};
  return box[2] * x > box[0] * x && box[3] * y > box[1] * y && mirrored[1] > mirrored[0];
}

Prepared blank() {
  return {at::zeros({3, kBlankSide, kBlankSide}), {at::zeros({0, 4}), at::zeros({0}, at::kLong)}};
}

}  // namespace

Loader::Loader(const data::ImageSource& source, const LoaderOptions& options, LevelsOf levels)
    : source_(source), options_(options), levels_(std::move(levels)), pool_(options.num_threads) {
  for (std::int64_t row = 0; options.pad_to > 0 && row < source.num_rows(); ++row) {
    const auto size = resized(row);
    if (std::max(size.height, size.width) > options.pad_to) {
      throw base::ConfigError(fmt::format(
          "data.pad_to = {} is too small for {}, row {}, which becomes {} x {} pixels: raise it, or lower model.sizes",
          options.pad_to, source.describe(), row, size.height, size.width));
    }
  }
}

void Loader::check_boxes() const {
  std::int64_t first = 0;
  for (std::int64_t row = 0; row < source_.num_rows(); ++row) {
    const auto stored = source_.shape(row);
    const ImageSize to = resized(row);
    const auto objects = source_.objects(row);
    for (std::size_t i = 0; i < objects.labels.size(); ++i) {
      const auto box = objects.boxes.subspan(4 * i, 4);
      if (!keeps_sides(box, {stored.height, stored.width}, to)) {
        throw base::DataError(
            fmt::format("data file {}: dataset /boxes, row {} (image {}) holds ({}), which has no width or no height left once "
                        "its picture of {} x "
                        "{} pixels is resized to {} x {}: leave it out, or raise model.sizes",
                        source_.describe(), first + static_cast<std::int64_t>(i), row, fmt::join(box, ", "), stored.height,
                        stored.width, to.height, to.width));
      }
    }
    first += static_cast<std::int64_t>(objects.labels.size());
  }
}

ImageSize Loader::resized(std::int64_t row) const {
  const auto stored = source_.shape(row);
  return resized_size({stored.height, stored.width}, options_.resize);
}

ImageSize Loader::padded(const std::vector<ImageSize>& sizes) const {
  return options_.pad_to > 0 ? ImageSize{options_.pad_to, options_.pad_to} : padded_size(sizes);
}

const torch::Tensor& Loader::anchors(ImageSize size) {
  auto& made = anchors_[{size.height, size.width}];
  if (!made.defined()) {
    made = make_anchors(size, levels_(size));
  }
  return made;
}

Prepared Loader::prepare(std::int64_t row) const {
  return prepare(row, false);
}

Prepared Loader::prepare(std::int64_t row, bool mirrored) const {
  const torch::NoGradGuard no_grad;
  const auto stored = source_.shape(row);
  const ImageSize from{stored.height, stored.width};
  torch::Tensor pixels_HW3 = at::empty({stored.height, stored.width, 3}, at::kByte);
  source_.read(row, {pixels_HW3.data_ptr<std::uint8_t>(), static_cast<std::size_t>(pixels_HW3.numel())});
  const auto objects = source_.objects(row);
  torch::Tensor boxes_G4 = at::tensor(std::vector<float>(objects.boxes.begin(), objects.boxes.end())).view({-1, 4});
  if (mirrored) {
    pixels_HW3 = pixels_HW3.flip(1);
    boxes_G4 = mirror_boxes(boxes_G4, stored.width);
  }
  const ImageSize to = resized(row);
  const std::vector<std::int64_t> labels(objects.labels.begin(), objects.labels.end());
  return {resize_image(pixels_HW3, to), {resize_boxes(boxes_G4, from, to), at::tensor(labels, at::kLong)}};
}

std::vector<std::future<Prepared>> Loader::begin(std::span<const std::int64_t> rows, const LoadKey& key) {
  std::vector<std::future<Prepared>> begun;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= 0) {
      const bool mirrored = is_mirrored(key, static_cast<std::int64_t>(i), options_.flip);
      begun.push_back(pool_.run([this, row = rows[i], mirrored] { return prepare(row, mirrored); }));
    }
  }
  return begun;
}

void Loader::announce(std::span<const std::int64_t> rows, const LoadKey& key) {
  if (options_.num_threads > 0) {
    announced_rows_.assign(rows.begin(), rows.end());
    announced_key_ = key;
    announced_ = begin(rows, key);
  }
}

Loaded Loader::load(std::span<const std::int64_t> rows, const LoadKey& key) {
  const bool expected = std::ranges::equal(rows, announced_rows_) && key == announced_key_ && !announced_.empty();
  auto coming = expected ? std::exchange(announced_, {}) : begin(rows, key);
  std::vector<Prepared> pictures;
  for (auto& one : coming) {
    pictures.push_back(one.get());
  }
  Loaded loaded;
  loaded.counted = static_cast<std::int64_t>(pictures.size());
  if (pictures.empty()) {
    pictures.push_back(blank());
  }
  std::vector<torch::Tensor> images;
  std::vector<Truth> truths;
  std::vector<ImageSize> sizes;
  for (auto& picture : pictures) {
    sizes.push_back({picture.image_3HW.size(1), picture.image_3HW.size(2)});
    images.push_back(std::move(picture.image_3HW));
    truths.push_back(std::move(picture.truth));
  }
  const ImageSize size = padded(sizes);
  loaded.images_N3HW = pad_images(images, size);
  loaded.targets = make_targets(truths, anchors(size), loaded.counted);
  return loaded;
}

}  // namespace shardmark::detection
