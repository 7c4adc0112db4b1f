#pragma once
// SwiGLU's gate (Shazeer, "GLU Variants Improve Transformer", 2020) for host memory: silu(gate) up and its gradients, each in
// one pass. T: float, Bf16; arithmetic in fp32, with a rounding to T after silu as the unfused operations have it.

#include <cstdint>

#include "kernels/element.hpp"

namespace shardmark::kernels {

/// e^x to within 3 units in the last place; 0 below -87, held at e^88 above; NaN stays NaN.
[[nodiscard]] float exponential(float x);

/// y = round(gate / (1 + e^-gate)) up.
template <typename T>
void swiglu(const T* gate, const T* up, std::int64_t count, T* y);

template <typename T>
struct SwigluInputs {
  const T* dy;
  const T* gate;
  const T* up;
};

/// With s = 1 / (1 + e^-gate): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s.
template <typename T>
void swiglu_backward(const SwigluInputs<T>& inputs, std::int64_t count, T* dgate, T* dup);

}  // namespace shardmark::kernels
