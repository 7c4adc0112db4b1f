#pragma once
// The gradient of an embedding's look-up on the host: rows of equal id added up. T: float, Bf16. Letters: N rows, C width.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace shardmark::kernels {

/// table[id] = the sum of the rows of this id, in fp32 and in the order of rows, rounded once. Of the table only rows that an
/// id names are written, and those are overwritten. Ids lie within the table; `rows_NC` holds ids.size() rows of `width`.
template <typename T>
void sum_rows(const T* rows_NC, std::span<const std::int64_t> ids, std::int64_t width, T* table);

}  // namespace shardmark::kernels
