#include "kernels/adam8bit.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/vector_clones.hpp"

namespace shardmark::kernels {
namespace {

constexpr std::size_t kBlock = kAdam8bitBlock;
constexpr std::size_t kLanes = 16;
constexpr float kFirstCodes = 127;
constexpr float kSecondCodes = 255;

// Built-in functions below: those of <cmath> carry other options than the clones and would be called, not inlined.

/// Coefficients of one step, worked out once.
struct Coefficients {
  float lr_decay = 0;    // lr x weight decay
  float step_size = 0;   // lr / (1 - beta1^t)
  float root_bias2 = 0;  // sqrt(1 - beta2^t)
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float coefficient = 1;
  std::uint32_t salt = 0;
};

/// Uniform in [0, 1): Wellons' "lowbias32" mixer over the value's bits and the step.
SM_INLINE_IN_CLONES float draw(float value, std::uint32_t salt) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value) ^ salt;
  bits ^= bits >> 16U;
  bits *= 0x7feb352dU;
  bits ^= bits >> 15U;
  bits *= 0x846ca68bU;
  bits ^= bits >> 16U;
  // 24 bits convert exactly; as a signed number, for which every vector width has a conversion.
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8U)) * 0x1p-24F;
}

/// Of a value in [0, 2^31): every vector width has this conversion.
SM_INLINE_IN_CLONES float whole(float value) {
  return static_cast<float>(static_cast<std::int32_t>(value));
}

SM_INLINE_IN_CLONES float power2(float code) {
  const float root = code / kFirstCodes;
  return root * root;
}
SM_INLINE_IN_CLONES float power4(float code) {
  const float root = code / kSecondCodes;
  const float square = root * root;
  return square * square;
}

SM_VECTOR_CLONES void step_block(float* __restrict parameters, const float* __restrict gradients, float* __restrict first,
                                 float* __restrict second, const Coefficients c) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float gradient = gradients[i] * c.coefficient;
    const float m = first[i] + (gradient - first[i]) * (1 - c.beta1);
    const float v = second[i] * c.beta2 + gradient * gradient * (1 - c.beta2);
    const float decayed = parameters[i] - c.lr_decay * parameters[i];
    parameters[i] = decayed - c.step_size * m / (__builtin_sqrtf(v) / c.root_bias2 + c.eps);
    first[i] = m;
    second[i] = v;
  }
}

SM_VECTOR_CLONES void decode_block(const Adam8bitMoments& moments, float first_scale, float second_scale, float* first,
                                   float* second) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    const auto code = static_cast<float>(moments.first[i]);
    const float magnitude = first_scale * power2(code);
    first[i] = code < 0 ? -magnitude : magnitude;
    second[i] = second_scale * power4(static_cast<float>(moments.second[i]));
  }
}

SM_VECTOR_CLONES void largest_of_block(const float* first, const float* second, float* lanes) {
  // Magnitudes of floats order as their bits do, as whole numbers.
  std::array<std::int32_t, 2 * kLanes> most{};
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::int32_t m = std::bit_cast<std::int32_t>(first[i + lane]) & 0x7fffffff;
      const std::int32_t v = std::bit_cast<std::int32_t>(second[i + lane]) & 0x7fffffff;
      most[lane] = m > most[lane] ? m : most[lane];
      most[kLanes + lane] = v > most[kLanes + lane] ? v : most[kLanes + lane];
    }
  }
  for (std::size_t lane = 0; lane < 2 * kLanes; ++lane) {
    lanes[lane] = std::bit_cast<float>(most[lane]);
  }
}

SM_VECTOR_CLONES void encode_block(const float* __restrict first, const float* __restrict second, float first_scale,
                                   float second_scale, std::uint32_t salt, std::int8_t* __restrict first_codes,
                                   std::uint8_t* __restrict second_codes) {
  const float first_inverse = first_scale > 0 ? 1 / first_scale : 0;
  const float second_inverse = second_scale > 0 ? 1 / second_scale : 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float m = __builtin_fabsf(first[i]) * first_inverse;
    float low = whole(__builtin_sqrtf(m) * kFirstCodes);
    low = low < kFirstCodes - 1 ? low : kFirstCodes - 1;
    const float m_below = power2(low);
    const float m_share = (m - m_below) / (power2(low + 1) - m_below);
    const float m_code = m_share > draw(first[i], salt) ? low + 1 : low;
    first_codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(first[i] < 0 ? -m_code : m_code));

    const float v = second[i] * second_inverse;
    float under = whole(__builtin_sqrtf(__builtin_sqrtf(v)) * kSecondCodes);
    under = under < kSecondCodes - 1 ? under : kSecondCodes - 1;
    const float v_below = power4(under);
    const float v_share = (v - v_below) / (power4(under + 1) - v_below);
    float v_code = v_share > draw(second[i], ~salt) ? under + 1 : under;
    const float least = v > 0 ? 1.0F : 0.0F;
    v_code = v_code < least ? least : v_code;
    second_codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(v_code));
  }
}

}  // namespace

void adam8bit_update(float* parameters, const float* gradients, const Adam8bitMoments& moments, std::int64_t count,
                     const Adam8bitStep& step) {
  SM_CHECK(count % kAdam8bitBlock == 0, "8-bit moments come in whole blocks");
  const double bias1 = 1 - std::pow(static_cast<double>(step.beta1), static_cast<double>(step.step));
  const double bias2 = 1 - std::pow(static_cast<double>(step.beta2), static_cast<double>(step.step));
  const Coefficients coefficients{.lr_decay = step.lr * step.weight_decay,
                                  .step_size = static_cast<float>(static_cast<double>(step.lr) / bias1),
                                  .root_bias2 = static_cast<float>(std::sqrt(bias2)),
                                  .beta1 = step.beta1,
                                  .beta2 = step.beta2,
                                  .eps = step.eps,
                                  .coefficient = step.coefficient,
                                  .salt = static_cast<std::uint32_t>(step.step) * 0x9e3779b9U};
  alignas(64) std::array<float, kBlock> first;
  alignas(64) std::array<float, kBlock> second;
  for (std::int64_t block = 0; block < count / kAdam8bitBlock; ++block) {
    const std::int64_t at = block * kAdam8bitBlock;
    const Adam8bitMoments here{moments.first + at, moments.second + at, moments.first_scale + block,
                               moments.second_scale + block};
    decode_block(here, *here.first_scale, *here.second_scale, first.data(), second.data());
    step_block(parameters + at, gradients + at, first.data(), second.data(), coefficients);
    std::array<float, 2 * kLanes> lanes{};
    largest_of_block(first.data(), second.data(), lanes.data());
    float first_scale = 0;
    float second_scale = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      first_scale = lanes[lane] > first_scale ? lanes[lane] : first_scale;
      second_scale = lanes[kLanes + lane] > second_scale ? lanes[kLanes + lane] : second_scale;
    }
    // A scale without a finite inverse: moments that small are nothing.
    first_scale = first_scale < std::numeric_limits<float>::min() ? 0 : first_scale;
    second_scale = second_scale < std::numeric_limits<float>::min() ? 0 : second_scale;
    encode_block(first.data(), second.data(), first_scale, second_scale, coefficients.salt, here.first, here.second);
    *here.first_scale = first_scale;
    *here.second_scale = second_scale;
  }
}

float adam8bit_first(std::int8_t code, float scale) {
  const float magnitude = scale * power2(static_cast<float>(code));
  return code < 0 ? -magnitude : magnitude;
}

float adam8bit_second(std::uint8_t code, float scale) {
  return scale * power4(static_cast<float>(code));
}

}  // namespace shardmark::kernels
