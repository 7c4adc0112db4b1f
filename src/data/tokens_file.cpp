#include "data/tokens_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "data/hdf5_input.hpp"
#include "data/token_checks.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
// Bounds rows x length x length, the most that counts can reach, to 64 bits.
constexpr std::int64_t kMaxPairs = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 30;

std::size_t to_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  if (problems.size() == 1) {
    throw base::DataError(problems.front());
  }
  throw base::DataError(fmt::format("{} problems:\n  - {}", problems.size(), fmt::join(problems, "\n  - ")));
}

}  // namespace

struct TokensFile::State {
  std::string digest;
  DataFile file;
  Dataset input_ids;
  Dataset labels;
  Dataset segment_ids;  // its handle is empty if there is none
  Dataset lengths;      // likewise
  bool segments = false;
  std::int64_t num_rows = 0;
  std::int64_t length = 0;
  std::vector<TokenCounts> counts;
  TokenCounts total;
  bool in_memory = false;
  std::vector<std::int32_t> kept_ids;
  std::vector<std::int32_t> kept_labels;
  std::vector<std::int32_t> kept_segments;

  [[nodiscard]] std::vector<std::string> check_input_ids(const TokensExpectation& expectation);
  [[nodiscard]] std::vector<std::string> check_others();
  void check_shapes(const TokensExpectation& expectation);
  void check_values(const TokensExpectation& expectation);
  [[nodiscard]] TokenRows kept(std::int64_t rows);
  void read_run(RowRange rows, const TokenRows& out) const;
  void close();
};

std::vector<std::string> TokensFile::State::check_input_ids(const TokensExpectation& expectation) {
  input_ids = open_dataset(file, "input_ids");
  const std::string& what = input_ids.what;
  const auto& shape = input_ids.shape;
  if (!input_ids.handle) {
    return {what + " is missing"};
  }
  if (input_ids.type != "int32" || shape.size() != 2) {
    return {fmt::format("{} is {} {}; int32 (rows, length) is needed", what, input_ids.type, shape_text(shape))};
  }
  if (shape[0] < 1 || shape[1] < 2 || shape[1] > kMaxLength || shape[0] > kMaxPairs / shape[1] / shape[1]) {
    return {fmt::format("{} has shape {}; at least one row of two tokens is needed", what, shape_text(shape))};
  }
  num_rows = shape[0];
  length = shape[1];
  if (expectation.length != 0 && length != expectation.length) {
    return {
        fmt::format("{} has rows of {} tokens, the run trains on {} (data.sequence_length)", what, length, expectation.length)};
  }
  return {};
}

std::vector<std::string> TokensFile::State::check_others() {
  std::vector<std::string> problems;
  const auto check = [&](Dataset& dataset, const std::string& name, const std::vector<std::int64_t>& shape, bool needed) {
    dataset = open_dataset(file, name);
    if (!dataset.handle) {
      if (needed) {
        problems.push_back(dataset.what + " is missing");
      }
    } else if (dataset.type != "int32" || dataset.shape != shape) {
      problems.push_back(fmt::format("{} is {} {}; int32 {} is needed beside /input_ids", dataset.what, dataset.type,
                                     shape_text(dataset.shape), shape_text(shape)));
    }
  };
  check(labels, "labels", {num_rows, length}, true);
  check(segment_ids, "segment_ids", {num_rows, length}, false);
  check(lengths, "lengths", {num_rows}, false);
  segments = static_cast<bool>(segment_ids.handle);
  return problems;
}

void TokensFile::State::check_shapes(const TokensExpectation& expectation) {
  auto problems = kind_problems(file, "tokens");
  if (problems.empty()) {
    problems = check_input_ids(expectation);
    // Without the shape of /input_ids nothing can be said of the others.
    if (num_rows > 0) {
      const auto more = check_others();
      problems.insert(problems.end(), more.begin(), more.end());
    }
  }
  if (!problems.empty()) {
    refuse(problems);
  }
}

void TokensFile::State::check_values(const TokensExpectation& expectation) {
  const std::int64_t row_bytes = length * (segments ? 12 : 8);
  in_memory = num_rows <= expectation.keep_below_bytes / row_bytes;
  const std::int64_t piece = in_memory ? num_rows : std::clamp<std::int64_t>(kPieceBytes / row_bytes, 1, num_rows);
  kept_ids.resize(to_size(piece * length));
  kept_labels.resize(to_size(piece * length));
  kept_segments.resize(segments ? to_size(piece * length) : 0);
  std::vector<std::int32_t> piece_lengths(lengths.handle ? to_size(piece) : 0);
  counts.reserve(to_size(num_rows));

  TokenRowChecker checker(expectation.vocabulary);
  for (std::int64_t first = 0; first < num_rows; first += piece) {
    const std::int64_t count = std::min(piece, num_rows - first);
    const TokenRows rows = kept(count);
    read_run({.first = first, .count = count}, rows);
    if (lengths.handle) {
      read_rows(lengths, {.first = first, .count = count}, H5T_NATIVE_INT32, piece_lengths.data());
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const TokenRows one = slice(rows, to_size(i), 1, to_size(length));
      TokenRow row{
          .index = first + i, .input_ids = one.input_ids, .labels = one.labels, .segment_ids = one.segment_ids, .length = {}};
      if (lengths.handle) {
        row.length = piece_lengths[to_size(i)];
      }
      const TokenCounts found = counts.emplace_back(checker.check(row));
      total = {total.tokens + found.tokens, total.targets + found.targets, total.visible_keys + found.visible_keys};
    }
  }
  auto problems = checker.problems(fmt::format("data file {}", file.path));
  if (problems.empty() && total.targets == 0) {
    problems.push_back(fmt::format("{} holds only {}: no row has a target to learn", labels.what, kIgnoredLabel));
  }
  if (!problems.empty()) {
    refuse(problems);
  }
}

TokenRows TokensFile::State::kept(std::int64_t rows) {
  const std::size_t positions = to_size(rows * length);
  return {.input_ids = std::span(kept_ids).first(positions),
          .labels = std::span(kept_labels).first(positions),
          .segment_ids = std::span(kept_segments).first(segments ? positions : 0)};
}

void TokensFile::State::read_run(RowRange rows, const TokenRows& out) const {
  read_rows(input_ids, rows, H5T_NATIVE_INT32, out.input_ids.data());
  read_rows(labels, rows, H5T_NATIVE_INT32, out.labels.data());
  if (segments) {
    read_rows(segment_ids, rows, H5T_NATIVE_INT32, out.segment_ids.data());
  }
}

/// Closes what is no longer read: everything once the rows are in memory, else the rows of the last piece.
void TokensFile::State::close() {
  lengths.handle = {};
  if (in_memory) {
    input_ids.handle = {};
    labels.handle = {};
    segment_ids.handle = {};
    file.handle = {};
  } else {
    kept_ids = {};
    kept_labels = {};
    kept_segments = {};
  }
}

TokensFile::TokensFile(const std::string& path, const TokensExpectation& expectation) : state_(std::make_unique<State>()) {
  state_->file = open_data_file(path);
  try {
    state_->check_shapes(expectation);
    state_->check_values(expectation);
    state_->digest = text_attribute(state_->file, "sha256");
  } catch (const record::Hdf5Error& error) {
    throw base::DataError(
        fmt::format("data file {}: HDF5 cannot read it: {}; truncated or damaged: make it again", path, error.what()));
  }
  state_->close();
}

TokensFile::~TokensFile() = default;

std::int64_t TokensFile::num_rows() const {
  return state_->num_rows;
}
std::int64_t TokensFile::length() const {
  return state_->length;
}
bool TokensFile::has_segments() const {
  return state_->segments;
}
TokenCounts TokensFile::counts(std::int64_t row) const {
  return row < 0 ? TokenCounts{} : state_->counts.at(to_size(row));
}
TokenCounts TokensFile::total() const {
  return state_->total;
}
std::string TokensFile::describe() const {
  return state_->file.path;
}
const std::string& TokensFile::digest() const {
  return state_->digest;
}
bool TokensFile::in_memory() const {
  return state_->in_memory;
}

void TokensFile::read(std::span<const std::int64_t> rows, const TokenRows& out) {
  check_spans(*this, rows, out);
  State& state = *state_;
  const std::size_t length = to_size(state.length);
  for (std::size_t i = 0; i < rows.size();) {
    const std::size_t count = run_length(rows.subspan(i));
    const TokenRows part = slice(out, i, count, length);
    if (rows[i] < 0) {
      fill(part);
    } else if (state.in_memory) {
      const TokenRows from = slice(state.kept(state.num_rows), to_size(rows[i]), count, length);
      std::ranges::copy(from.input_ids, part.input_ids.begin());
      std::ranges::copy(from.labels, part.labels.begin());
      std::ranges::copy(from.segment_ids, part.segment_ids.begin());
    } else {
      state.read_run({.first = rows[i], .count = static_cast<std::int64_t>(count)}, part);
    }
    i += count;
  }
}

}  // namespace shardmark::data
