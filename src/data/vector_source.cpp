#include "data/vector_source.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace shardmark::data {

void check_spans(const VectorSource& source, std::span<const std::int64_t> rows, const VectorRows& out) {
  const std::size_t num_rows = rows.size();
  const auto features = num_rows * static_cast<std::size_t>(source.width());
  const auto targets = num_rows * static_cast<std::size_t>(source.target_width());
  const std::size_t labels = source.target_width() == 0 ? num_rows : 0;
  SM_CHECK(out.features.size() == features && out.targets.size() == targets && out.labels.size() == labels,
           fmt::format("{} rows need {} features, {} targets, {} labels; the buffers hold {}, {}, {}", num_rows, features,
                       targets, labels, out.features.size(), out.targets.size(), out.labels.size()));
  for (const std::int64_t row : rows) {
    SM_CHECK(row >= -1 && row < source.num_rows(),
             fmt::format("row {} was asked for, {} has {}", row, source.describe(), source.num_rows()));
  }
}

}  // namespace shardmark::data
