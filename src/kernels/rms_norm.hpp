#pragma once
// Root mean square norm over rows (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019), fused for host memory:
// y = round(x r) w with r = 1 / sqrt(mean(x^2) + epsilon), statistics in fp32. T: float, Bf16.
// Letters: R rows, C width.

#include <cstdint>

#include "kernels/element.hpp"

namespace shardmark::kernels {

struct RmsNormShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// `inverse_R` receives r of each row, for the backward pass. Buffers do not overlap.
template <typename T>
void rms_norm(const T* x_RC, const T* weight_C, double epsilon, RmsNormShape shape, T* y_RC, float* inverse_R);

/// What the backward pass reads.
template <typename T>
struct RmsNormInputs {
  const T* dy_RC;
  const T* x_RC;
  const T* weight_C;
  const float* inverse_R;
};

/// With g = dy w: dx = r (g - x r^2 mean(g x)); dw = sum over rows of dy round(x r), in fp32, sixteen rows at a time. Either
/// result may be nullptr: not wanted.
template <typename T>
void rms_norm_backward(const RmsNormInputs<T>& inputs, RmsNormShape shape, T* dx_RC, T* dweight_C);

}  // namespace shardmark::kernels
