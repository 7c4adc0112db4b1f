#include "kernels/rotary.hpp"

#include "base/vector_clones.hpp"

namespace shardmark::kernels {
namespace {

/// `sign` is 1 or -1.
template <typename T>
SM_INLINE_IN_CLONES void turn(const T* __restrict x, const float* __restrict cos, const float* __restrict sin, float sign,
                              std::int64_t half, T* __restrict y) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float first = Element<T>::widen(x[i]);
    const float second = Element<T>::widen(x[half + i]);
    const float turned = sin[i] * sign;
    y[i] = Element<T>::round(first * cos[i] - second * turned);
    y[half + i] = Element<T>::round(second * cos[i] + first * turned);
  }
}

SM_VECTOR_CLONES void turn_heads(const float* x, const float* cos, const float* sin, float sign, std::int64_t heads,
                                 std::int64_t half, float* y) {
  for (std::int64_t head = 0; head < heads; ++head) {
    turn(x + head * 2 * half, cos, sin, sign, half, y + head * 2 * half);
  }
}
SM_VECTOR_CLONES void turn_heads(const Bf16* x, const float* cos, const float* sin, float sign, std::int64_t heads,
                                 std::int64_t half, Bf16* y) {
  for (std::int64_t head = 0; head < heads; ++head) {
    turn(x + head * 2 * half, cos, sin, sign, half, y + head * 2 * half);
  }
}

}  // namespace

template <typename T>
void rotate(const T* x_RHD, RotaryTables tables, RotaryShape shape, RotaryDirection direction, T* y_RHD) {
  const float sign = direction == RotaryDirection::forward ? 1.0F : -1.0F;
  const std::int64_t row_width = shape.heads * shape.head_width;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t at = row % shape.table_rows * shape.head_width;
    turn_heads(x_RHD + row * row_width, tables.cos_SD + at, tables.sin_SD + at, sign, shape.heads, shape.head_width / 2,
               y_RHD + row * row_width);
  }
}

template void rotate(const float*, RotaryTables, RotaryShape, RotaryDirection, float*);
template void rotate(const Bf16*, RotaryTables, RotaryShape, RotaryDirection, Bf16*);

}  // namespace shardmark::kernels
