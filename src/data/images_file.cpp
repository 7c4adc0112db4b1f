#include "data/images_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/hdf5_input.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;
constexpr std::int64_t kLongestSide = std::int64_t{1} << 16;

std::size_t to_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// A row of /images.
struct Place {
  std::int64_t offset = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t id = 0;
};

record::DatatypeHandle place_type(const std::string& what) {
  record::DatatypeHandle type(H5Tcreate(H5T_COMPOUND, sizeof(Place)), "H5Tcreate", what);
  for (const auto& [name, offset] : {std::pair{"offset", HOFFSET(Place, offset)}, std::pair{"height", HOFFSET(Place, height)},
                                     std::pair{"width", HOFFSET(Place, width)}, std::pair{"id", HOFFSET(Place, id)}}) {
    record::hdf5_check(H5Tinsert(type.get(), name, offset, H5T_NATIVE_INT64), "H5Tinsert", what);
  }
  return type;
}

/// Corners x1, y1, x2, y2 in order.
bool lies_within(const float* box, const Place& place) {
  return box[0] >= 0 && box[1] >= 0 && static_cast<double>(box[2]) <= static_cast<double>(place.width) &&
         static_cast<double>(box[3]) <= static_cast<double>(place.height);
}

/// The first value that must not be there, and how many there are.
class FirstOf {
 public:
  template <typename Text>
  void add(const Text& text) {
    if (count_++ == 0) {
      first_ = text();
    }
  }
  void append_to(std::vector<std::string>& problems, const std::string& what) const {
    if (count_ > 0) {
      const std::string more = count_ > 1 ? fmt::format(" ({} more such rows)", count_ - 1) : "";
      problems.push_back(fmt::format("{}, {}{}", what, first_, more));
    }
  }

 private:
  std::int64_t count_ = 0;
  std::string first_;
};

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  if (problems.size() == 1) {
    throw base::DataError(problems.front());
  }
  throw base::DataError(fmt::format("{} problems:\n  - {}", problems.size(), fmt::join(problems, "\n  - ")));
}

}  // namespace

struct ImagesFile::State {
  DataFile file;
  Dataset pixels;
  std::vector<Place> places;
  std::vector<float> boxes;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> starts;
  std::vector<double> areas;
  std::vector<std::uint8_t> crowds;
  std::vector<std::uint8_t> kept;  // pixels
  bool in_memory = false;
  mutable std::mutex reading;  // HDF5 is not made for threads

  /// A dataset of one type and shape; -1 accepts any length. Adds what is wrong to `problems`.
  Dataset open(const std::string& name, const std::string& type, const std::vector<std::int64_t>& shape,
               std::vector<std::string>& problems) const;
  void check_pixels(std::vector<std::string>& problems);
  void read_tables();
  void check_places(std::vector<std::string>& problems) const;
  void check_starts(std::vector<std::string>& problems) const;
  void check_objects(const ImagesExpectation& expectation, std::vector<std::string>& problems) const;
  [[nodiscard]] std::int64_t image_of(std::int64_t box) const {
    return std::ranges::upper_bound(starts, box) - starts.begin() - 1;
  }
};

Dataset ImagesFile::State::open(const std::string& name, const std::string& type, const std::vector<std::int64_t>& shape,
                                std::vector<std::string>& problems) const {
  Dataset dataset = open_dataset(file, name);
  bool fits = dataset.type == type && dataset.shape.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || dataset.shape[i] == shape[i];
  }
  if (!dataset.handle) {
    problems.push_back(dataset.what + " is missing");
  } else if (!fits) {
    std::string wanted = fmt::format("{}", fmt::join(shape, ", "));
    problems.push_back(fmt::format("{} is {} {}; {} ({}) is needed, -1 for any length", dataset.what, dataset.type,
                                   shape_text(dataset.shape), type, wanted));
  }
  return dataset;
}

void ImagesFile::State::check_pixels(std::vector<std::string>& problems) {
  pixels = open_dataset(file, "pixels");
  if (!pixels.handle || pixels.type != "float32" || pixels.shape.size() != 1) {
    pixels = open("pixels", "uint8", {-1}, problems);
    return;
  }
  // Decoded by someone else: say the worst of it.
  std::vector<float> piece;
  for (std::int64_t first = 0; first < pixels.shape[0]; first += kPieceElements) {
    piece.resize(to_size(std::min(kPieceElements, pixels.shape[0] - first)));
    read_rows(pixels, {first, static_cast<std::int64_t>(piece.size())}, H5T_NATIVE_FLOAT, piece.data());
    const auto bad = std::ranges::find_if(piece, [](float value) { return !std::isfinite(value); });
    if (bad != piece.end()) {
      problems.push_back(fmt::format("{}, row {} holds {}; uint8 values from 0 to 255 are needed", pixels.what,
                                     first + (bad - piece.begin()), *bad));
      return;
    }
  }
  problems.push_back(
      fmt::format("{} is float32 {}; uint8 (-1) is needed, -1 for any length", pixels.what, shape_text(pixels.shape)));
}

void ImagesFile::State::read_tables() {
  std::vector<std::string> problems = kind_problems(file, "images");
  if (!problems.empty()) {
    refuse(problems);
  }
  check_pixels(problems);
  const Dataset images = open("images", "compound", {-1}, problems);
  const std::int64_t num_images = images.handle && images.shape.size() == 1 ? images.shape[0] : -1;
  const Dataset box = open("boxes", "float32", {-1, 4}, problems);
  const std::int64_t num_boxes = box.handle && box.shape.size() == 2 ? box.shape[0] : -1;
  const Dataset label = open("box_labels", "int32", {num_boxes}, problems);
  const Dataset start = open("box_start", "int64", {num_images < 0 ? -1 : num_images + 1}, problems);
  const auto optional = [&](const std::string& name, const std::string& type) {
    return open_dataset(file, name).handle ? open(name, type, {num_boxes}, problems) : Dataset{};
  };
  const Dataset area = optional("box_area", "float64");
  const Dataset crowd = optional("box_crowd", "uint8");
  if (num_images == 0) {
    problems.push_back(images.what + " is empty; at least one picture is needed");
  }
  if (!problems.empty()) {
    refuse(problems);
  }
  const auto read_all = [](const Dataset& dataset, std::int64_t columns, hid_t type, auto& out) {
    out.resize(to_size(dataset.shape[0] * columns));
    read_rows(dataset, {0, dataset.shape[0]}, type, out.data());
  };
  try {
    read_all(images, 1, place_type(images.what).get(), places);
  } catch (const record::Hdf5Error&) {
    throw base::DataError(images.what + " lacks one of the whole numbers offset, height, width, id");
  }
  read_all(box, 4, H5T_NATIVE_FLOAT, boxes);
  read_all(label, 1, H5T_NATIVE_INT32, labels);
  read_all(start, 1, H5T_NATIVE_INT64, starts);
  if (area.handle) {
    read_all(area, 1, H5T_NATIVE_DOUBLE, areas);
  } else {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      areas.push_back(static_cast<double>(boxes[4 * i + 2] - boxes[4 * i]) *
                      static_cast<double>(boxes[4 * i + 3] - boxes[4 * i + 1]));
    }
  }
  crowds.assign(labels.size(), 0);
  if (crowd.handle) {
    read_all(crowd, 1, H5T_NATIVE_UINT8, crowds);
  }
}

void ImagesFile::State::check_places(std::vector<std::string>& problems) const {
  FirstOf bad;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [offset, height, width, id] = places[i];
    const bool has_size = height >= 1 && width >= 1 && height <= kLongestSide && width <= kLongestSide;
    if (!has_size || offset < 0 || offset > pixels.shape[0] - 3 * height * width) {
      bad.add([&] {
        return fmt::format("row {} (id {}) holds {} x {} pixels from byte {} on; /pixels has {} bytes", i, id, height, width,
                           offset, pixels.shape[0]);
      });
    }
  }
  bad.append_to(problems, fmt::format("data file {}: dataset /images", file.path));
}

void ImagesFile::State::check_starts(std::vector<std::string>& problems) const {
  FirstOf bad;
  const auto num_boxes = static_cast<std::int64_t>(labels.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t least = i == 0 ? 0 : starts[i - 1];
    const std::int64_t most = i == 0 ? 0 : num_boxes;
    if (starts[i] < least || starts[i] > most || (i + 1 == starts.size() && starts[i] != num_boxes)) {
      bad.add([&] {
        return fmt::format("row {} holds {}; it must rise from 0 to the number of boxes, {}", i, starts[i], num_boxes);
      });
    }
  }
  bad.append_to(problems, fmt::format("data file {}: dataset /box_start", file.path));
}

void ImagesFile::State::check_objects(const ImagesExpectation& expectation, std::vector<std::string>& problems) const {
  FirstOf bad_boxes, bad_labels, bad_areas;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const float* box = boxes.data() + 4 * i;
    const auto where = [&] { return fmt::format("row {} (image {})", i, image_of(static_cast<std::int64_t>(i))); };
    if (std::any_of(box, box + 4, [](float side) { return !std::isfinite(side); })) {
      bad_boxes.add(
          [&] { return fmt::format("{} holds ({}); only finite numbers train", where(), fmt::join(box, box + 4, ", ")); });
    } else if (!(box[2] > box[0] && box[3] > box[1])) {
      bad_boxes.add(
          [&] { return fmt::format("{} holds ({}); x2 must exceed x1, and y2 y1", where(), fmt::join(box, box + 4, ", ")); });
    } else if (const auto& place = places[to_size(image_of(static_cast<std::int64_t>(i)))]; !lies_within(box, place)) {
      bad_boxes.add([&] {
        return fmt::format("{} holds ({}); its picture has {} x {} pixels (height x width): cut boxes at its border, in pixels",
                           where(), fmt::join(box, box + 4, ", "), place.height, place.width);
      });
    }
    if (labels[i] < 1 || labels[i] >= expectation.classes) {
      bad_labels.add([&] {
        return fmt::format("{} holds label {}; labels lie in [1, {}) (model.classes)", where(), labels[i], expectation.classes);
      });
    }
    if (!std::isfinite(areas[i])) {
      bad_areas.add([&] { return fmt::format("{} holds {}; only finite numbers count", where(), areas[i]); });
    }
  }
  bad_boxes.append_to(problems, fmt::format("data file {}: dataset /boxes", file.path));
  bad_labels.append_to(problems, fmt::format("data file {}: dataset /box_labels", file.path));
  bad_areas.append_to(problems, fmt::format("data file {}: dataset /box_area", file.path));
}

ImagesFile::ImagesFile(const std::string& path, const ImagesExpectation& expectation) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.file = open_data_file(path);
  try {
    state.read_tables();
    std::vector<std::string> problems;
    state.check_places(problems);
    state.check_starts(problems);
    if (problems.empty()) {
      state.check_objects(expectation, problems);
    }
    if (!problems.empty()) {
      refuse(problems);
    }
    state.in_memory = state.pixels.shape[0] <= expectation.keep_below_bytes;
    if (state.in_memory) {
      state.kept.resize(to_size(state.pixels.shape[0]));
      read_rows(state.pixels, {0, state.pixels.shape[0]}, H5T_NATIVE_UINT8, state.kept.data());
      state.pixels.handle = {};
      state.file.handle = {};
    }
  } catch (const record::Hdf5Error& error) {
    throw base::DataError(
        fmt::format("data file {}: HDF5 cannot read it: {}; truncated or damaged: make it again", path, error.what()));
  }
}

ImagesFile::~ImagesFile() = default;

std::int64_t ImagesFile::num_rows() const {
  return static_cast<std::int64_t>(state_->places.size());
}
ImageShape ImagesFile::shape(std::int64_t row) const {
  const auto& place = state_->places.at(to_size(row));
  return {place.height, place.width};
}
std::string ImagesFile::describe() const {
  return state_->file.path;
}
bool ImagesFile::in_memory() const {
  return state_->in_memory;
}

ImageObjects ImagesFile::objects(std::int64_t row) const {
  const State& state = *state_;
  const std::size_t first = to_size(state.starts.at(to_size(row)));
  const std::size_t count = to_size(state.starts.at(to_size(row) + 1)) - first;
  return {.boxes = std::span(state.boxes).subspan(4 * first, 4 * count),
          .labels = std::span(state.labels).subspan(first, count),
          .areas = std::span(state.areas).subspan(first, count),
          .crowds = std::span(state.crowds).subspan(first, count)};
}

void ImagesFile::read(std::int64_t row, std::span<std::uint8_t> pixels) const {
  const State& state = *state_;
  const auto& place = state.places.at(to_size(row));
  SM_CHECK(static_cast<std::int64_t>(pixels.size()) == shape(row).num_bytes(), "a picture's memory has another size");
  if (state.in_memory) {
    std::copy_n(state.kept.begin() + place.offset, pixels.size(), pixels.begin());
    return;
  }
  const std::lock_guard lock(state.reading);
  read_rows(state.pixels, {place.offset, static_cast<std::int64_t>(pixels.size())}, H5T_NATIVE_UINT8, pixels.data());
}

}  // namespace shardmark::data
