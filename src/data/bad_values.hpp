#pragma once
// Values of a dataset that nobody can train on: the first one is named, the others are counted. Inside the data folder only.

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::data {

class BadValues {
 public:
  void check_finite(std::span<const float> values, std::int64_t first_row, std::int64_t columns) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) [[unlikely]] {
        const auto position = static_cast<std::int64_t>(i);
        add(fmt::format("row {}, column {} holds {}; only finite numbers train", first_row + position / columns,
                        position % columns, values[i]));
      }
    }
  }

  /// Whole numbers from 0 to below a limit.
  struct Names {
    std::string_view one;
    std::string_view many;
    std::int64_t limit = 0;
    std::string_view source = "";  // of the limit
  };
  void check_within(std::span<const std::int64_t> values, std::int64_t first_row, const Names& names) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || values[i] >= names.limit) [[unlikely]] {
        add(fmt::format("row {} holds {} {}; {} lie in [0, {}){}", first_row + static_cast<std::int64_t>(i), names.one,
                        values[i], names.many, names.limit, names.source));
      }
    }
  }

  void add(std::string text) {
    if (count_++ == 0) {
      first_ = std::move(text);
    }
  }

  void append_to(std::vector<std::string>& problems, const std::string& what) const {
    if (count_ > 0) {
      const std::string more = count_ > 1 ? fmt::format(" ({} more such values)", count_ - 1) : "";
      problems.push_back(fmt::format("{}, {}{}", what, first_, more));
    }
  }

 private:
  std::int64_t count_ = 0;
  std::string first_;
};

}  // namespace shardmark::data
