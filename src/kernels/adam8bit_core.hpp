#pragma once
// One element of AdamW with 8-bit moments, shared by the host's loops and the device kernel. Host loops are compiled for
// several vector widths: functions carry SM_INLINE_IN_CLONES, and square roots are the compiler's own, since those of <cmath>
// carry other options than the clones and would be called, not inlined.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/vector_clones.hpp"
#include "kernels/adam8bit.hpp"
#include "kernels/element.hpp"

namespace shardmark::kernels {

inline constexpr float kFirstCodes = 127;
inline constexpr float kSecondCodes = 255;

/// Of one step, worked out once. No default values: a device block shares one.
struct Adam8bitFactors {
  float lr_decay;    // lr x weight decay
  float step_size;   // lr / (1 - beta1^t)
  float root_bias2;  // sqrt(1 - beta2^t)
  float beta1;
  float beta2;
  float eps;
  float coefficient;
  std::uint32_t salt;
};

SM_HOST_DEVICE inline Adam8bitFactors adam8bit_factors(const Adam8bitStep& rule, const UpdateState& state) {
  Adam8bitFactors factors;
  factors.lr_decay = rule.lr * rule.weight_decay;
  factors.step_size = static_cast<float>(static_cast<double>(rule.lr) / state.bias_correction1);
  factors.root_bias2 = static_cast<float>(std::sqrt(state.bias_correction2));
  factors.beta1 = rule.beta1;
  factors.beta2 = rule.beta2;
  factors.eps = rule.eps;
  factors.coefficient = state.coefficient;
  factors.salt = static_cast<std::uint32_t>(state.steps) * 0x9e3779b9U;
  return factors;
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES float root_of(float value) {
#if defined(__CUDA_ARCH__)
  return sqrtf(value);
#else
  return __builtin_sqrtf(value);
#endif
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Uniform in [0, 1): Wellons' "lowbias32" mixer over the value's bits and the step.
SM_HOST_DEVICE SM_INLINE_IN_CLONES float draw(float value, std::uint32_t salt) {
  std::uint32_t bits = bits_of(value) ^ salt;
  bits ^= bits >> 16U;
  bits *= 0x7feb352dU;
  bits ^= bits >> 15U;
  bits *= 0x846ca68bU;
  bits ^= bits >> 16U;
  // 24 bits convert exactly; as a signed number, for which every vector width has a conversion.
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8U)) * 0x1p-24F;
}

/// Of a value in [0, 2^31): every vector width has this conversion.
SM_HOST_DEVICE SM_INLINE_IN_CLONES float whole(float value) {
  return static_cast<float>(static_cast<std::int32_t>(value));
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES float power2(float code) {
  const float root = code / kFirstCodes;
  return root * root;
}
SM_HOST_DEVICE SM_INLINE_IN_CLONES float power4(float code) {
  const float root = code / kSecondCodes;
  const float square = root * root;
  return square * square;
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES float decode_first(std::int8_t first, float scale) {
  const auto code = static_cast<float>(first);
  const float magnitude = scale * power2(code);
  return code < 0 ? -magnitude : magnitude;
}
SM_HOST_DEVICE SM_INLINE_IN_CLONES float decode_second(std::uint8_t second, float scale) {
  return scale * power4(static_cast<float>(second));
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES void step_element(const Adam8bitFactors& c, float& parameter, float gradient, float& first,
                                                     float& second) {
  gradient = gradient * c.coefficient;
  const float m = first + (gradient - first) * (1 - c.beta1);
  const float v = second * c.beta2 + gradient * gradient * (1 - c.beta2);
  const float decayed = parameter - c.lr_decay * parameter;
  parameter = decayed - c.step_size * m / (root_of(v) / c.root_bias2 + c.eps);
  first = m;
  second = v;
}

/// A block's scale from its largest magnitude. A scale without a finite inverse: moments that small are nothing.
SM_HOST_DEVICE SM_INLINE_IN_CLONES float scale_of(float largest) {
  constexpr float kLeastNormal = 0x1p-126F;
  return largest < kLeastNormal ? 0 : largest;
}
SM_HOST_DEVICE SM_INLINE_IN_CLONES float inverse_of(float scale) {
  return scale > 0 ? 1 / scale : 0;
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES std::int8_t encode_first(float first, float inverse, std::uint32_t salt) {
  const float m = float_of(bits_of(first) & 0x7fffffffU) * inverse;
  float low = whole(root_of(m) * kFirstCodes);
  low = low < kFirstCodes - 1 ? low : kFirstCodes - 1;
  const float m_below = power2(low);
  const float m_share = (m - m_below) / (power2(low + 1) - m_below);
  const float m_code = m_share > draw(first, salt) ? low + 1 : low;
  return static_cast<std::int8_t>(static_cast<std::int32_t>(first < 0 ? -m_code : m_code));
}

SM_HOST_DEVICE SM_INLINE_IN_CLONES std::uint8_t encode_second(float second, float inverse, std::uint32_t salt) {
  const float v = second * inverse;
  float under = whole(root_of(root_of(v)) * kSecondCodes);
  under = under < kSecondCodes - 1 ? under : kSecondCodes - 1;
  const float v_below = power4(under);
  const float v_share = (v - v_below) / (power4(under + 1) - v_below);
  float v_code = v_share > draw(second, ~salt) ? under + 1 : under;
  const float least = v > 0 ? 1.0F : 0.0F;
  v_code = v_code < least ? least : v_code;
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(v_code));
}

}  // namespace shardmark::kernels
