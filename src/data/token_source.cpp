#include "data/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::data {

void check_spans(const TokenSource& source, std::span<const std::int64_t> rows, const TokenRows& out) {
  const std::size_t positions = rows.size() * static_cast<std::size_t>(source.length());
  const std::size_t segments = source.has_segments() ? positions : 0;
  SM_CHECK(out.input_ids.size() == positions && out.labels.size() == positions && out.segment_ids.size() == segments,
           fmt::format("{} rows need {} tokens, {} labels, {} segment numbers; the buffers hold {}, {}, {}", rows.size(),
                       positions, positions, segments, out.input_ids.size(), out.labels.size(), out.segment_ids.size()));
  for (const std::int64_t row : rows) {
    SM_CHECK(row >= -1 && row < source.num_rows(),
             fmt::format("row {} was asked for, {} has {}", row, source.describe(), source.num_rows()));
  }
}

TokenRows slice(const TokenRows& out, std::size_t first, std::size_t count, std::size_t length) {
  const auto part = [&](std::span<std::int32_t> all) {
    return all.empty() ? all : all.subspan(first * length, count * length);
  };
  return {.input_ids = part(out.input_ids), .labels = part(out.labels), .segment_ids = part(out.segment_ids)};
}

void fill(const TokenRows& out) {
  std::ranges::fill(out.input_ids, 0);
  std::ranges::fill(out.labels, kIgnoredLabel);
  std::ranges::fill(out.segment_ids, 0);
}

}  // namespace shardmark::data
