#pragma once
// Rows of tokens with their labels, from a file or made up. Says nothing of steps, ranks or batches: see data/sampler.hpp.

#include <cstdint>
#include <span>
#include <string>

namespace shardmark::data {

/// The label of a position that is no target.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// Where rows land, one after another; lent for the call. Labels stand beside their own token: the loss shifts them.
struct TokenRows {
  std::span<std::int32_t> input_ids;    // rows x length
  std::span<std::int32_t> labels;       // rows x length
  std::span<std::int32_t> segment_ids;  // rows x length if the source has_segments(), else empty; 0 = padding
};

/// What a row holds, without reading it.
struct TokenCounts {
  std::int64_t tokens = 0;        // that are not padding
  std::int64_t targets = 0;       // labels that are not kIgnoredLabel
  std::int64_t visible_keys = 0;  // pairs (query, key) of causal attention within segments, padding left out
};

/// Counts of one segment of `tokens` tokens, `targets` of them counted in the loss.
[[nodiscard]] constexpr TokenCounts counts_of_segment(std::int64_t tokens, std::int64_t targets) noexcept {
  return {tokens, targets, tokens * (tokens + 1) / 2};
}

class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  /// Positions of every row, padding included.
  [[nodiscard]] virtual std::int64_t length() const = 0;
  /// Whether a row may hold several texts that must not see each other.
  [[nodiscard]] virtual bool has_segments() const = 0;
  /// Of a row by index; -1, a filler, counts nothing.
  [[nodiscard]] virtual TokenCounts counts(std::int64_t row) const = 0;
  /// Sums over all rows.
  [[nodiscard]] virtual TokenCounts total() const = 0;
  /// Where rows come from, for output and record: "synthetic" or a path.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Reads rows by index. An index of -1 is a filler: token 0, no target, all padding. Spans must have exactly the rows'
  /// size. Not safe to call from two threads at once. Throws IoError if reading fails.
  virtual void read(std::span<const std::int64_t> rows, const TokenRows& out) = 0;
};

/// Checks the spans of a `read` against the source. A wrong size is a broken invariant of the caller.
void check_spans(const TokenSource& source, std::span<const std::int64_t> rows, const TokenRows& out);
/// The part of `out` that belongs to rows [first, first + count).
[[nodiscard]] TokenRows slice(const TokenRows& out, std::size_t first, std::size_t count, std::size_t length);
/// Fills one or more rows as fillers.
void fill(const TokenRows& out);

}  // namespace shardmark::data
