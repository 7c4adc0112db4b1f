#include "data/vectors_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/bad_values.hpp"
#include "data/hdf5_input.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 16;

std::size_t to_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

struct VectorsFile::State {
  std::string digest;
  DataFile file;
  Dataset features;
  Dataset targets;
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
  std::int64_t target_width = 0;  // 0: class labels
  std::int64_t num_classes = 0;
  bool in_memory = false;
  std::vector<float> kept_features;
  std::vector<float> kept_targets;
  std::vector<std::int64_t> kept_labels;

  [[nodiscard]] bool has_labels() const { return target_width == 0; }

  std::vector<std::string> check_features(const VectorsExpectation& expectation);
  std::vector<std::string> check_targets(const VectorsExpectation& expectation);
  void check_shapes(const VectorsExpectation& expectation);
  void check_values(const VectorsExpectation& expectation);
  void read_run(RowRange rows, const VectorRows& out) const;
};

std::vector<std::string> VectorsFile::State::check_features(const VectorsExpectation& expectation) {
  features = open_dataset(file, "features");
  const std::string& what = features.what;
  if (!features.handle) {
    return {what + " is missing"};
  }
  if (features.type != "float32" || features.shape.size() != 2) {
    return {fmt::format("{} is {} {}; float32 (rows, width) is needed", what, features.type, shape_text(features.shape))};
  }
  if (features.shape[0] < 1 || features.shape[1] < 1 || features.shape[0] > kMaxElements / features.shape[1]) {
    return {fmt::format("{} has shape {}; at least one row and one column are needed", what, shape_text(features.shape))};
  }
  num_rows = features.shape[0];
  width = features.shape[1];
  if (expectation.width != 0 && width != expectation.width) {
    return {fmt::format("{} has {} columns, the model takes {} (model.input_width)", what, width, expectation.width)};
  }
  return {};
}

std::vector<std::string> VectorsFile::State::check_targets(const VectorsExpectation& expectation) {
  targets = open_dataset(file, "targets");
  if (!targets.handle) {
    return {targets.what + " is missing"};
  }
  const std::string found = fmt::format("{} is {} {}", targets.what, targets.type, shape_text(targets.shape));
  const bool labels = targets.type == "int64" && targets.shape.size() == 1;
  const bool numbers = targets.type == "float32" && targets.shape.size() == 2;
  if (!labels && !numbers) {
    return {found + "; int64 (rows,) or float32 (rows, k) is needed"};
  }
  if (numbers && (targets.shape[1] < 1 || targets.shape[0] > kMaxElements / targets.shape[1])) {
    return {found + "; at least one column is needed"};
  }
  target_width = numbers ? targets.shape[1] : 0;
  std::vector<std::string> problems;
  if (features.handle && features.shape.size() == 2 && targets.shape[0] != features.shape[0]) {
    problems.push_back(fmt::format("{}, but /features has {} rows", found, features.shape[0]));
  }
  if (expectation.classes > 0 && !labels) {
    problems.push_back(fmt::format("{}; the model sorts into {} classes and needs int64 labels", found, expectation.classes));
  }
  if (expectation.target_width > 0 && target_width != expectation.target_width) {
    problems.push_back(fmt::format("{}; the model predicts {} numbers a row and needs float32 (rows, {})", found,
                                   expectation.target_width, expectation.target_width));
  }
  return problems;
}

void VectorsFile::State::check_shapes(const VectorsExpectation& expectation) {
  auto problems = kind_problems(file, "vectors");
  if (problems.empty()) {
    problems = check_features(expectation);
    const auto more = check_targets(expectation);
    problems.insert(problems.end(), more.begin(), more.end());
  }
  if (problems.size() == 1) {
    throw base::DataError(problems.front());
  }
  if (!problems.empty()) {
    throw base::DataError(fmt::format("{} problems:\n  - {}", problems.size(), fmt::join(problems, "\n  - ")));
  }
}

void VectorsFile::State::check_values(const VectorsExpectation& expectation) {
  const std::int64_t row_bytes = 4 * width + (has_labels() ? 8 : 4 * target_width);
  in_memory = num_rows <= expectation.keep_below_bytes / row_bytes;
  const std::int64_t piece = in_memory ? num_rows : std::clamp<std::int64_t>(kPieceBytes / row_bytes, 1, num_rows);
  kept_features.resize(to_size(piece * width));
  kept_targets.resize(to_size(piece * target_width));
  kept_labels.resize(has_labels() ? to_size(piece) : 0);

  const std::int64_t label_limit = expectation.classes > 0 ? expectation.classes : std::numeric_limits<std::int32_t>::max();
  BadValues bad_features;
  BadValues bad_targets;
  for (std::int64_t first = 0; first < num_rows; first += piece) {
    const std::int64_t count = std::min(piece, num_rows - first);
    const VectorRows out{.features = std::span(kept_features).first(to_size(count * width)),
                         .targets = std::span(kept_targets).first(to_size(count * target_width)),
                         .labels = std::span(kept_labels).first(has_labels() ? to_size(count) : 0)};
    read_run({.first = first, .count = count}, out);
    bad_features.check_finite(out.features, first, width);
    bad_targets.check_finite(out.targets, first, std::max<std::int64_t>(target_width, 1));
    bad_targets.check_within(out.labels, first, {"label", "labels", label_limit});
    for (const std::int64_t label : out.labels) {
      num_classes = std::max(num_classes, label + 1);
    }
  }
  std::vector<std::string> problems;
  bad_features.append_to(problems, features.what);
  bad_targets.append_to(problems, targets.what);
  if (!problems.empty()) {
    throw base::DataError(fmt::format("{}", fmt::join(problems, "\n")));
  }
  if (expectation.classes > 0) {
    num_classes = expectation.classes;
  }
}

void VectorsFile::State::read_run(RowRange rows, const VectorRows& out) const {
  read_rows(features, rows, H5T_NATIVE_FLOAT, out.features.data());
  if (has_labels()) {
    read_rows(targets, rows, H5T_NATIVE_INT64, out.labels.data());
  } else {
    read_rows(targets, rows, H5T_NATIVE_FLOAT, out.targets.data());
  }
}

VectorsFile::VectorsFile(const std::string& path, const VectorsExpectation& expectation) : state_(std::make_unique<State>()) {
  state_->file = open_data_file(path);
  try {
    state_->check_shapes(expectation);
    state_->check_values(expectation);
    state_->digest = text_attribute(state_->file, "sha256");
  } catch (const record::Hdf5Error& error) {
    throw base::DataError(
        fmt::format("data file {}: HDF5 cannot read it: {}; truncated or damaged: make it again", path, error.what()));
  }
  if (state_->in_memory) {
    state_->features.handle = {};
    state_->targets.handle = {};
    state_->file.handle = {};
  } else {
    state_->kept_features = {};
    state_->kept_targets = {};
    state_->kept_labels = {};
  }
}

VectorsFile::~VectorsFile() = default;

std::int64_t VectorsFile::num_rows() const {
  return state_->num_rows;
}
std::int64_t VectorsFile::width() const {
  return state_->width;
}
std::int64_t VectorsFile::target_width() const {
  return state_->target_width;
}
std::int64_t VectorsFile::num_classes() const {
  return state_->num_classes;
}
std::string VectorsFile::describe() const {
  return state_->file.path;
}
const std::string& VectorsFile::digest() const {
  return state_->digest;
}
bool VectorsFile::in_memory() const {
  return state_->in_memory;
}

namespace {

template <typename T>
void copy_row(const std::vector<T>& kept, std::int64_t row, std::span<T> out) {
  const auto first = kept.begin() + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(out.size());
  std::copy_n(first, out.size(), out.begin());
}

}  // namespace

void VectorsFile::read(std::span<const std::int64_t> rows, const VectorRows& out) {
  check_spans(*this, rows, out);
  const State& state = *state_;
  const std::size_t width = to_size(state.width);
  const std::size_t target_width = to_size(state.target_width);
  const std::size_t label_width = state.has_labels() ? 1 : 0;
  for (std::size_t i = 0; i < rows.size();) {
    const std::size_t length = state.in_memory ? 1 : run_length(rows.subspan(i));
    const VectorRows slice{.features = out.features.subspan(i * width, length * width),
                           .targets = out.targets.subspan(i * target_width, length * target_width),
                           .labels = out.labels.subspan(i * label_width, length * label_width)};
    if (rows[i] < 0) {
      std::fill(slice.features.begin(), slice.features.end(), 0.0F);
      std::fill(slice.targets.begin(), slice.targets.end(), 0.0F);
      std::fill(slice.labels.begin(), slice.labels.end(), 0);
    } else if (state.in_memory) {
      copy_row(state.kept_features, rows[i], slice.features);
      copy_row(state.kept_targets, rows[i], slice.targets);
      copy_row(state.kept_labels, rows[i], slice.labels);
    } else {
      state.read_run({.first = rows[i], .count = static_cast<std::int64_t>(length)}, slice);
    }
    i += length;
  }
}

}  // namespace shardmark::data
