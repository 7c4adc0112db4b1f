#include "data/synthetic_images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kLeastSide = 16;
constexpr std::uint64_t kMostObjects = 4;  // of a picture

/// Whether the middle of the pixel (x, y) lies in the shape of this label inside the box.
bool inside(std::int32_t label, const float* box, double x, double y) {
  const double u = (x - static_cast<double>(box[0])) / static_cast<double>(box[2] - box[0]);
  const double v = (y - static_cast<double>(box[1])) / static_cast<double>(box[3] - box[1]);
  if (u < 0 || u >= 1 || v < 0 || v >= 1) {
    return false;
  }
  switch (label % 3) {
    case 1: return true;
    case 2: return (2 * u - 1) * (2 * u - 1) + (2 * v - 1) * (2 * v - 1) <= 1;
    default: return std::abs(2 * u - 1) <= v;
  }
}

/// Away from the background's greys.
std::array<std::uint8_t, 3> colour_of(std::int32_t label) {
  const auto hash = base::hash_mix(base::hash_text("colour"), static_cast<std::uint64_t>(label));
  std::array<std::uint8_t, 3> colour{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    colour[channel] = static_cast<std::uint8_t>((hash >> (8 * channel)) & 0xffU);
  }
  colour[hash % 3] = 255;
  colour[(hash + 1) % 3] /= 4;
  return colour;
}

}  // namespace

SyntheticImages::SyntheticImages(const SyntheticImagesOptions& options) : options_(options) {
  std::vector<std::string> problems;
  if (options.num_rows < 1) {
    problems.push_back(fmt::format("{} synthetic pictures: at least one is needed", options.num_rows));
  }
  if (options.shape.height < kLeastSide || options.shape.width < kLeastSide) {
    problems.push_back(fmt::format("synthetic pictures of {} x {} pixels: each side needs at least {}", options.shape.height,
                                   options.shape.width, kLeastSide));
  }
  if (options.classes < 2) {
    problems.push_back(fmt::format("model.classes = {}: labels count from 1, so at least 2 are needed", options.classes));
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  for (std::int64_t row = 0; row < options.num_rows; ++row) {
    starts_.push_back(labels_.size());
    const base::RandomStream stream(options.seed, "synthetic objects", static_cast<std::uint64_t>(row));
    const std::uint64_t count = stream.bits(0) % (kMostObjects + 1);  // a fifth of the pictures is empty
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto number = [&](std::uint64_t which) { return static_cast<double>(stream.uniform(8 * (i + 1) + which)); };
      const auto side = [&](std::uint64_t which, std::int64_t all, float& low, float& high) {
        const double length = std::floor(static_cast<double>(all) * (0.15 + 0.35 * number(which)));
        low = static_cast<float>(std::floor((static_cast<double>(all) - length) * number(which + 1)));
        high = low + static_cast<float>(length);
      };
      std::array<float, 4> box{};
      side(0, options.shape.width, box[0], box[2]);
      side(2, options.shape.height, box[1], box[3]);
      boxes_.insert(boxes_.end(), box.begin(), box.end());
      labels_.push_back(static_cast<std::int32_t>(1 + number(4) * static_cast<double>(options.classes - 1)));
      areas_.push_back(static_cast<double>(box[2] - box[0]) * static_cast<double>(box[3] - box[1]));
      crowds_.push_back(0);
    }
  }
  starts_.push_back(labels_.size());
}

ImageShape SyntheticImages::shape(std::int64_t row) const {
  SM_CHECK(row >= 0 && row < options_.num_rows, "no such picture");
  return options_.shape;
}

ImageObjects SyntheticImages::objects(std::int64_t row) const {
  const std::size_t first = starts_.at(static_cast<std::size_t>(row));
  const std::size_t count = starts_.at(static_cast<std::size_t>(row) + 1) - first;
  return {.boxes = std::span(boxes_).subspan(4 * first, 4 * count),
          .labels = std::span(labels_).subspan(first, count),
          .areas = std::span(areas_).subspan(first, count),
          .crowds = std::span(crowds_).subspan(first, count)};
}

void SyntheticImages::read(std::int64_t row, std::span<std::uint8_t> pixels) const {
  SM_CHECK(static_cast<std::int64_t>(pixels.size()) == shape(row).num_bytes(), "a picture's memory has another size");
  const auto [height, width] = options_.shape;
  const base::RandomStream stream(options_.seed, "synthetic background", static_cast<std::uint64_t>(row));
  // A slope of grey, and grain that takes one draw for four pixels.
  const double base = 60 + 80 * static_cast<double>(stream.uniform(0));
  const double slope_x = 60 * static_cast<double>(stream.uniform(1)) - 30;
  const double slope_y = 60 * static_cast<double>(stream.uniform(2)) - 30;
  std::array<std::uint32_t, 4> grain{};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t pixel = y * width + x;
      if (pixel % 16 == 0) {
        grain = base::philox(stream.key(), static_cast<std::uint64_t>(pixel / 16 + 1), stream.salt());
      }
      const std::uint32_t noise = grain[static_cast<std::size_t>(pixel % 16 / 4)] >> (8U * static_cast<unsigned>(pixel % 4));
      const double grey = base + slope_x * static_cast<double>(x) / static_cast<double>(width) +
                          slope_y * static_cast<double>(y) / static_cast<double>(height) + static_cast<double>(noise & 15U);
      std::fill_n(pixels.begin() + 3 * pixel, 3, static_cast<std::uint8_t>(grey));
    }
  }
  const auto found = objects(row);
  for (std::size_t i = 0; i < found.labels.size(); ++i) {
    const float* box = found.boxes.data() + 4 * i;
    const auto colour = colour_of(found.labels[i]);
    for (auto y = static_cast<std::int64_t>(box[1]); y < static_cast<std::int64_t>(box[3]); ++y) {
      for (auto x = static_cast<std::int64_t>(box[0]); x < static_cast<std::int64_t>(box[2]); ++x) {
        if (inside(found.labels[i], box, static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5)) {
          std::ranges::copy(colour, pixels.begin() + 3 * (y * width + x));
        }
      }
    }
  }
}

}  // namespace shardmark::data
