#include "data/ratings_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "data/bad_values.hpp"
#include "data/hdf5_input.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kRowBytes = 8 + 8 + 4;
constexpr std::int64_t kPieceRows = std::int64_t{1} << 18;

std::size_t to_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

void refuse(const std::vector<std::string>& problems) {
  if (problems.size() == 1) {
    throw base::DataError(problems.front());
  }
  if (!problems.empty()) {
    throw base::DataError(fmt::format("{} problems:\n  - {}", problems.size(), fmt::join(problems, "\n  - ")));
  }
}

}  // namespace

struct RatingsFile::State {
  DataFile file;
  Dataset user;
  Dataset item;
  Dataset label;
  std::int64_t num_rows = 0;
  std::int64_t num_users = 0;
  std::int64_t num_items = 0;
  bool in_memory = false;
  std::vector<std::int64_t> kept_users;
  std::vector<std::int64_t> kept_items;
  std::vector<float> kept_labels;

  void check_shapes() {
    auto problems = kind_problems(file, "ratings");
    refuse(problems);
    for (const auto& [name, value] : {std::pair("num_users", &num_users), std::pair("num_items", &num_items)}) {
      *value = number_attribute(file, name);
      if (*value < 1) {
        problems.push_back(
            fmt::format("data file {}: attribute {} is no whole number of at least 1; it sizes a table", file.path, name));
      }
    }
    const std::array<std::pair<Dataset*, std::pair<const char*, const char*>>, 3> wanted{
        {{&user, {"user", "int64"}}, {&item, {"item", "int64"}}, {&label, {"label", "float32"}}}};
    for (const auto& [dataset, about] : wanted) {
      *dataset = open_dataset(file, about.first);
      if (!dataset->handle) {
        problems.push_back(dataset->what + " is missing");
      } else if (dataset->type != about.second || dataset->shape.size() != 1 || dataset->shape[0] < 1) {
        problems.push_back(fmt::format("{} is {} {}; {} (rows,) is needed, of at least one row", dataset->what, dataset->type,
                                       shape_text(dataset->shape), about.second));
      } else if (num_rows == 0) {
        num_rows = dataset->shape[0];
      } else if (dataset->shape[0] != num_rows) {
        problems.push_back(fmt::format("{} has {} rows, but /{} has {}", dataset->what, dataset->shape[0], "user", num_rows));
      }
    }
    refuse(problems);
  }

  void check_values(const RatingsExpectation& expectation) {
    in_memory = num_rows <= expectation.keep_below_bytes / kRowBytes;
    const std::int64_t piece = in_memory ? num_rows : std::min(kPieceRows, num_rows);
    kept_users.resize(to_size(piece));
    kept_items.resize(to_size(piece));
    kept_labels.resize(to_size(piece));
    const BadValues::Names users{"user", "users", expectation.users > 0 ? expectation.users : num_users,
                                 expectation.users > 0 ? " (model.users)" : " (attribute num_users)"};
    BadValues bad_users;
    BadValues bad_items;
    BadValues bad_labels;
    for (std::int64_t first = 0; first < num_rows; first += piece) {
      const std::size_t count = to_size(std::min(piece, num_rows - first));
      const RatingRows out{std::span(kept_users).first(count), std::span(kept_items).first(count),
                           std::span(kept_labels).first(count)};
      read_run({.first = first, .count = static_cast<std::int64_t>(count)}, out);
      bad_users.check_within(out.users, first, users);
      bad_items.check_within(out.items, first, {"item", "items", std::numeric_limits<std::int64_t>::max()});
      for (std::size_t i = 0; i < count; ++i) {
        if (!(out.labels[i] >= 0 && out.labels[i] <= 1)) [[unlikely]] {  // NaN is not within anything
          bad_labels.add(fmt::format("row {} holds label {}; labels are finite, from 0 to 1",
                                     first + static_cast<std::int64_t>(i), out.labels[i]));
        }
      }
    }
    std::vector<std::string> problems;
    bad_users.append_to(problems, user.what);
    bad_items.append_to(problems, item.what);
    bad_labels.append_to(problems, label.what);
    refuse(problems);
  }

  void read_run(RowRange rows, const RatingRows& out) const {
    read_rows(user, rows, H5T_NATIVE_INT64, out.users.data());
    read_rows(item, rows, H5T_NATIVE_INT64, out.items.data());
    read_rows(label, rows, H5T_NATIVE_FLOAT, out.labels.data());
  }
};

RatingsFile::RatingsFile(const std::string& path, const RatingsExpectation& expectation) : state_(std::make_unique<State>()) {
  auto& state = *state_;
  state.file = open_data_file(path);
  try {
    state.check_shapes();
    state.check_values(expectation);
  } catch (const record::Hdf5Error& error) {
    throw base::DataError(
        fmt::format("data file {}: HDF5 cannot read it: {}; truncated or damaged: make it again", path, error.what()));
  }
  if (state.in_memory) {
    state.user.handle = {};
    state.item.handle = {};
    state.label.handle = {};
    state.file.handle = {};
  } else {
    state.kept_users = {};
    state.kept_items = {};
    state.kept_labels = {};
  }
}

RatingsFile::~RatingsFile() = default;

std::int64_t RatingsFile::num_rows() const {
  return state_->num_rows;
}
std::int64_t RatingsFile::num_users() const {
  return state_->num_users;
}
std::int64_t RatingsFile::num_items() const {
  return state_->num_items;
}
std::string RatingsFile::describe() const {
  return state_->file.path;
}

void RatingsFile::read(std::span<const std::int64_t> rows, const RatingRows& out) {
  const State& state = *state_;
  SM_CHECK(out.users.size() == rows.size() && out.items.size() == rows.size() && out.labels.size() == rows.size(),
           "buffers do not fit the rows that were asked for");
  for (std::size_t i = 0; i < rows.size();) {
    SM_CHECK(rows[i] >= -1 && rows[i] < state.num_rows,
             fmt::format("row {} was asked for, {} has {}", rows[i], describe(), state.num_rows));
    std::size_t length = 1;
    if (rows[i] < 0) {
      out.users[i] = out.items[i] = 0;
      out.labels[i] = 0;
    } else if (state.in_memory) {
      const std::size_t row = to_size(rows[i]);
      out.users[i] = state.kept_users[row];
      out.items[i] = state.kept_items[row];
      out.labels[i] = state.kept_labels[row];
    } else {
      length = run_length(rows.subspan(i));
      state.read_run({.first = rows[i], .count = static_cast<std::int64_t>(length)},
                     {out.users.subspan(i, length), out.items.subspan(i, length), out.labels.subspan(i, length)});
    }
    i += length;
  }
}

}  // namespace shardmark::data
