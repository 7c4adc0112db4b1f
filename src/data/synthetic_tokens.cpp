#include "data/synthetic_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

// Bounds the visible keys of all rows, the largest count there is, to 64 bits.
constexpr std::int64_t kMaxPairs = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 30;

std::vector<std::string> problems_of(const SyntheticTokensOptions& options) {
  std::vector<std::string> problems;
  if (options.num_rows < 1) {
    problems.push_back(fmt::format("synthetic tokens: {} rows; at least one is needed", options.num_rows));
  }
  if (options.length < 2 || options.length > kMaxLength) {
    problems.push_back(
        fmt::format("synthetic tokens: a length of {}; 2 to {} are accepted, as the first token is never a target",
                    options.length, kMaxLength));
  }
  if (options.vocabulary < 1 || options.vocabulary > std::numeric_limits<std::int32_t>::max()) {
    problems.push_back(fmt::format("synthetic tokens: a vocabulary of {}; 1 to {} are accepted", options.vocabulary,
                                   std::numeric_limits<std::int32_t>::max()));
  }
  if (problems.empty() && options.num_rows > kMaxPairs / options.length / options.length) {
    problems.push_back(fmt::format("synthetic tokens: {} rows of {} are too many", options.num_rows, options.length));
  }
  return problems;
}

}  // namespace

SyntheticTokens::SyntheticTokens(const SyntheticTokensOptions& options)
    : options_(options), stream_(options.seed, "data.tokens") {
  auto problems = problems_of(options);
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
}

TokenCounts SyntheticTokens::counts(std::int64_t row) const {
  return row < 0 ? TokenCounts{} : counts_of_segment(options_.length, options_.length - 1);
}

TokenCounts SyntheticTokens::total() const {
  const TokenCounts one = counts(0);
  return {one.tokens * options_.num_rows, one.targets * options_.num_rows, one.visible_keys * options_.num_rows};
}

void SyntheticTokens::read(std::span<const std::int64_t> rows, const TokenRows& out) {
  check_spans(*this, rows, out);
  const auto length = static_cast<std::size_t>(options_.length);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TokenRows row = slice(out, i, 1, length);
    fill(row);
    if (rows[i] < 0) {
      continue;
    }
    const std::uint64_t first = static_cast<std::uint64_t>(rows[i]) * length;
    for (std::size_t t = 0; t < length; ++t) {
      const auto u = static_cast<double>(stream_.uniform(first + t));
      row.input_ids[t] = static_cast<std::int32_t>(static_cast<double>(options_.vocabulary) * (u * u));
    }
    std::copy(row.input_ids.begin() + 1, row.input_ids.end(), row.labels.begin() + 1);
  }
}

}  // namespace shardmark::data
