#include "kernels/swiglu.hpp"

#include <bit>

#include "base/vector_clones.hpp"

namespace shardmark::kernels {
namespace {

/// x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series to r^7 (the rest is below r^8 / 8! < 6e-9), times 2^k.
SM_INLINE_IN_CLONES float exponential_of(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kShift = 0x1.8p+23F;  // adding it rounds to a whole number, which the low bits then hold
  // ln 2 in two parts: k times the first is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  const float above = x < -87.0F ? -87.0F : x;  // NaN compares false and passes
  const float held = above > 88.0F ? 88.0F : above;
  const float shifted = held * kLog2E + kShift;
  const float k = shifted - kShift;
  const float r = (held - k * kLn2High) - k * kLn2Low;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift) + 127U;
  const float scaled = sum * std::bit_cast<float>(exponent << 23U);
  return x < -87.0F ? 0.0F : scaled;
}

SM_INLINE_IN_CLONES float sigmoid(float x) {
  return 1.0F / (1.0F + exponential_of(-x));
}

template <typename T>
SM_INLINE_IN_CLONES void gate_up(const T* __restrict gate, const T* __restrict up, std::int64_t count, T* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = Element<T>::widen(gate[i]);
    const T activated = Element<T>::round(x * sigmoid(x));
    y[i] = Element<T>::round(Element<T>::widen(activated) * Element<T>::widen(up[i]));
  }
}

template <typename T>
SM_INLINE_IN_CLONES void gate_up_backward(const T* __restrict dy, const T* __restrict gate, const T* __restrict up,
                                          std::int64_t count, T* __restrict dgate, T* __restrict dup) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = Element<T>::widen(gate[i]);
    const float gradient = Element<T>::widen(dy[i]);
    const float s = sigmoid(x);
    dgate[i] = Element<T>::round(gradient * Element<T>::widen(up[i]) * (s * (1.0F + x * (1.0F - s))));
    dup[i] = Element<T>::round(gradient * (x * s));
  }
}

// Clones are made of plain functions, not of templates: one set for each type.

SM_VECTOR_CLONES void forward_all(const float* gate, const float* up, std::int64_t count, float* y) {
  gate_up(gate, up, count, y);
}
SM_VECTOR_CLONES void forward_all(const Bf16* gate, const Bf16* up, std::int64_t count, Bf16* y) {
  gate_up(gate, up, count, y);
}
SM_VECTOR_CLONES void backward_all(const float* dy, const float* gate, const float* up, std::int64_t count, float* dgate,
                                   float* dup) {
  gate_up_backward(dy, gate, up, count, dgate, dup);
}
SM_VECTOR_CLONES void backward_all(const Bf16* dy, const Bf16* gate, const Bf16* up, std::int64_t count, Bf16* dgate,
                                   Bf16* dup) {
  gate_up_backward(dy, gate, up, count, dgate, dup);
}

}  // namespace

float exponential(float x) {
  return exponential_of(x);
}

template <typename T>
void swiglu(const T* gate, const T* up, std::int64_t count, T* y) {
  forward_all(gate, up, count, y);
}

template <typename T>
void swiglu_backward(const SwigluInputs<T>& inputs, std::int64_t count, T* dgate, T* dup) {
  backward_all(inputs.dy, inputs.gate, inputs.up, count, dgate, dup);
}

template void swiglu(const float*, const float*, std::int64_t, float*);
template void swiglu(const Bf16*, const Bf16*, std::int64_t, Bf16*);
template void swiglu_backward(const SwigluInputs<float>&, std::int64_t, float*, float*);
template void swiglu_backward(const SwigluInputs<Bf16>&, std::int64_t, Bf16*, Bf16*);

}  // namespace shardmark::kernels
