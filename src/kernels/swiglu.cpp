#include "kernels/swiglu.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/vector_clones.hpp"
#include "kernels/convert.hpp"

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

// Each loop has elements of one width alone: in loops of two widths vectors are short and half empty. So bf16 passes through
// blocks of fp32 that stay in the nearest cache.
constexpr std::int64_t kBlock = 512;

SM_VECTOR_CLONES void silu_all(const float* __restrict gate, std::int64_t count, float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = gate[i] * sigmoid(gate[i]);
  }
}
SM_VECTOR_CLONES void multiply_all(const float* __restrict factor, std::int64_t count, float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] *= factor[i];
  }
}
SM_VECTOR_CLONES void backward_all(const float* __restrict dy, const float* __restrict gate, const float* __restrict up,
                                   std::int64_t count, float* __restrict dgate, float* __restrict dup) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = gate[i];
    const float s = sigmoid(x);
    dgate[i] = dy[i] * up[i] * (s * (1.0F + x * (1.0F - s)));
    dup[i] = dy[i] * (x * s);
  }
}

using Block = std::array<float, kBlock>;

void forward_block(const float* gate, const float* up, std::int64_t count, float* y) {
  silu_all(gate, count, y);
  multiply_all(up, count, y);
}
void forward_block(const Bf16* gate, const Bf16* up, std::int64_t count, Bf16* y) {
  const auto size = static_cast<std::size_t>(count);
  Block wide;
  Block result;
  convert(wide.data(), gate, size);
  silu_all(wide.data(), count, result.data());
  convert(y, result.data(), size);
  convert(result.data(), y, size);
  convert(wide.data(), up, size);
  multiply_all(wide.data(), count, result.data());
  convert(y, result.data(), size);
}

void backward_block(const float* dy, const float* gate, const float* up, std::int64_t count, float* dgate, float* dup) {
  backward_all(dy, gate, up, count, dgate, dup);
}
void backward_block(const Bf16* dy, const Bf16* gate, const Bf16* up, std::int64_t count, Bf16* dgate, Bf16* dup) {
  const auto size = static_cast<std::size_t>(count);
  std::array<Block, 5> wide;
  convert(wide[0].data(), dy, size);
  convert(wide[1].data(), gate, size);
  convert(wide[2].data(), up, size);
  backward_all(wide[0].data(), wide[1].data(), wide[2].data(), count, wide[3].data(), wide[4].data());
  convert(dgate, wide[3].data(), size);
  convert(dup, wide[4].data(), size);
}

}  // namespace

float exponential(float x) {
  return exponential_of(x);
}

template <typename T>
void swiglu(const T* gate, const T* up, std::int64_t count, T* y) {
  for (std::int64_t i = 0; i < count; i += kBlock) {
    forward_block(gate + i, up + i, std::min(kBlock, count - i), y + i);
  }
}

template <typename T>
void swiglu_backward(const SwigluInputs<T>& inputs, std::int64_t count, T* dgate, T* dup) {
  for (std::int64_t i = 0; i < count; i += kBlock) {
    backward_block(inputs.dy + i, inputs.gate + i, inputs.up + i, std::min(kBlock, count - i), dgate + i, dup + i);
  }
}

template void swiglu(const float*, const float*, std::int64_t, float*);
template void swiglu(const Bf16*, const Bf16*, std::int64_t, Bf16*);
template void swiglu_backward(const SwigluInputs<float>&, std::int64_t, float*, float*);
template void swiglu_backward(const SwigluInputs<Bf16>&, std::int64_t, Bf16*, Bf16*);

}  // namespace shardmark::kernels
