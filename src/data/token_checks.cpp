#include "data/token_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardmark::data {
namespace {

/// Counts a fault and makes the text of the first.
template <typename MakeText>
void add(auto& fault, const MakeText& make_text) {
  if (fault.count++ == 0) {
    fault.first = make_text();
  }
}

}  // namespace

std::int64_t TokenRowChecker::tokens_of(const TokenRow& row) {
  auto tokens = static_cast<std::int64_t>(row.input_ids.size());
  if (!row.segment_ids.empty()) {
    tokens -= std::ranges::count(row.segment_ids, 0);
  }
  if (!row.length) {
    return tokens;
  }
  if (*row.length < 1 || *row.length > static_cast<std::int64_t>(row.input_ids.size())) {
    add(bad_length_,
        [&] { return fmt::format("row {} holds {}; a row has 1 to {} tokens", row.index, *row.length, row.input_ids.size()); });
    return tokens;
  }
  if (!row.segment_ids.empty() && *row.length != tokens) {
    add(bad_length_, [&] {
      return fmt::format("row {} holds {}, but /segment_ids has {} positions that are not padding", row.index, *row.length,
                         tokens);
    });
  }
  return *row.length;
}

void TokenRowChecker::check_segments(const TokenRow& row) {
  std::int32_t before = 0;
  for (std::size_t i = 0; i < row.segment_ids.size(); ++i) {
    const std::int32_t here = row.segment_ids[i];
    const bool goes_on = here == before && (here != 0 || i > 0);
    const bool begins = here == before + 1 && (before != 0 || i == 0);
    const bool ends = here == 0 && i > 0;
    if (!goes_on && !begins && !ends) [[unlikely]] {
      add(bad_segment_, [&] {
        return fmt::format(
            "row {}, column {} holds {} after {}; segments are numbered 1, 2, ... from the first column on, and "
            "only padding (0) follows padding",
            row.index, i, here, i == 0 ? "nothing" : std::to_string(before));
      });
      return;
    }
    before = here;
  }
}

void TokenRowChecker::check_values(const TokenRow& row, std::int64_t tokens) {
  for (std::size_t i = 0; i < row.input_ids.size(); ++i) {
    const std::int32_t token = row.input_ids[i];
    const std::int32_t label = row.labels[i];
    if (token < 0 || token >= vocabulary_) [[unlikely]] {
      add(bad_token_, [&] {
        return fmt::format("row {}, column {} holds {}; tokens lie in [0, {}) (model.vocab_size)", row.index, i, token,
                           vocabulary_);
      });
    }
    if (label == kIgnoredLabel) {
      continue;
    }
    if (label < 0 || label >= vocabulary_) [[unlikely]] {
      add(bad_label_, [&] {
        return fmt::format("row {}, column {} holds {}; labels are {} or lie in [0, {}) (model.vocab_size)", row.index, i,
                           label, kIgnoredLabel, vocabulary_);
      });
    }
    if (static_cast<std::int64_t>(i) >= tokens) [[unlikely]] {
      add(padding_label_, [&] {
        return fmt::format("row {}, column {} holds {}; labels of padding must be {}", row.index, i, label, kIgnoredLabel);
      });
    } else if (i == 0 || (!row.segment_ids.empty() && row.segment_ids[i] != row.segment_ids[i - 1])) [[unlikely]] {
      add(first_label_, [&] {
        return fmt::format("row {}, column {} holds {}; the first label of a segment must be {}, as nothing comes before it",
                           row.index, i, label, kIgnoredLabel);
      });
    }
  }
}

TokenCounts TokenRowChecker::check(const TokenRow& row) {
  const std::int64_t tokens = tokens_of(row);
  check_segments(row);
  check_values(row, tokens);
  TokenCounts counts;
  const auto targets = [&row](std::size_t first, std::size_t last) {
    const auto part = row.labels.subspan(first, last - first);
    return static_cast<std::int64_t>(part.size()) - std::ranges::count(part, kIgnoredLabel);
  };
  const auto end = static_cast<std::size_t>(tokens);
  for (std::size_t first = 0; first < end;) {
    std::size_t last = first + 1;
    while (last < end && (row.segment_ids.empty() || row.segment_ids[last] == row.segment_ids[first])) {
      ++last;
    }
    const TokenCounts segment = counts_of_segment(static_cast<std::int64_t>(last - first), targets(first, last));
    counts.tokens += segment.tokens;
    counts.targets += segment.targets;
    counts.visible_keys += segment.visible_keys;
    first = last;
  }
  return counts;
}

std::vector<std::string> TokenRowChecker::problems(const std::string& file) const {
  std::vector<std::string> problems;
  for (const Fault* fault : {&bad_token_, &bad_label_, &first_label_, &padding_label_, &bad_segment_, &bad_length_}) {
    if (fault->count > 0) {
      const std::string more = fault->count > 1 ? fmt::format(" ({} more such values)", fault->count - 1) : "";
      problems.push_back(fmt::format("{}: dataset /{}, {}{}", file, fault->dataset, fault->first, more));
    }
  }
  return problems;
}

}  // namespace shardmark::data
