#pragma once
// Rotary positions (Su et al., "RoFormer", 2021) for host memory: the first half of each head is turned against the second, in
// fp32, in one pass over the projection's output. T: float, Bf16.
// Letters: R rows (texts x positions), H heads, D width of a head, S rows of the tables.

#include <cstdint>

#include "kernels/element.hpp"

namespace shardmark::kernels {

struct RotaryShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;  // even
  std::int64_t table_rows = 0;  // row r of x takes row r % table_rows
};

/// Both (S, D); their second halves repeat the first and are not read.
struct RotaryTables {
  const float* cos_SD;
  const float* sin_SD;
};

enum class RotaryDirection : std::uint8_t { forward, backward };

/// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin; `backward` turns the other way, which is its gradient. Buffers do not overlap.
template <typename T>
void rotate(const T* x_RHD, RotaryTables tables, RotaryShape shape, RotaryDirection direction, T* y_RHD);

}  // namespace shardmark::kernels
