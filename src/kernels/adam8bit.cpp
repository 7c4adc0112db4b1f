#include "kernels/adam8bit.hpp"

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "kernels/adam8bit_core.hpp"
#include "kernels/convert.hpp"
#include "kernels/float_types.hpp"

namespace shardmark::kernels {
namespace {

constexpr std::size_t kBlock = kAdam8bitBlock;
constexpr std::size_t kLanes = 16;

SM_VECTOR_CLONES void step_block(float* __restrict parameters, const float* __restrict gradients, float* __restrict first,
                                 float* __restrict second, const Adam8bitFactors c) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    step_element(c, parameters[i], gradients[i], first[i], second[i]);
  }
}

SM_VECTOR_CLONES void decode_block(const Adam8bitMoments& moments, float first_scale, float second_scale, float* first,
                                   float* second) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    first[i] = decode_first(moments.first[i], first_scale);
    second[i] = decode_second(moments.second[i], second_scale);
  }
}

SM_VECTOR_CLONES void largest_of_block(const float* first, const float* second, float* lanes) {
  // Magnitudes of floats order as their bits do, as whole numbers.
  std::array<std::int32_t, 2 * kLanes> most{};
  for (std::size_t i = 0; i < kBlock; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto m = static_cast<std::int32_t>(bits_of(first[i + lane]) & 0x7fffffffU);
      const auto v = static_cast<std::int32_t>(bits_of(second[i + lane]) & 0x7fffffffU);
      most[lane] = m > most[lane] ? m : most[lane];
      most[kLanes + lane] = v > most[kLanes + lane] ? v : most[kLanes + lane];
    }
  }
  for (std::size_t lane = 0; lane < 2 * kLanes; ++lane) {
    lanes[lane] = float_of(static_cast<std::uint32_t>(most[lane]));
  }
}

SM_VECTOR_CLONES void encode_block(const float* __restrict first, const float* __restrict second, float first_scale,
                                   float second_scale, std::uint32_t salt, std::int8_t* __restrict first_codes,
                                   std::uint8_t* __restrict second_codes) {
  const float first_inverse = inverse_of(first_scale);
  const float second_inverse = inverse_of(second_scale);
  for (std::size_t i = 0; i < kBlock; ++i) {
    first_codes[i] = encode_first(first[i], first_inverse, salt);
    second_codes[i] = encode_second(second[i], second_inverse, salt);
  }
}

/// One block of 256.
void update_block(float* parameters, const float* gradients, const Adam8bitMoments& here, const Adam8bitFactors& factors) {
  alignas(64) std::array<float, kBlock> first;
  alignas(64) std::array<float, kBlock> second;
  decode_block(here, *here.first_scale, *here.second_scale, first.data(), second.data());
  step_block(parameters, gradients, first.data(), second.data(), factors);
  std::array<float, 2 * kLanes> lanes{};
  largest_of_block(first.data(), second.data(), lanes.data());
  float first_largest = 0;
  float second_largest = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    first_largest = lanes[lane] > first_largest ? lanes[lane] : first_largest;
    second_largest = lanes[kLanes + lane] > second_largest ? lanes[kLanes + lane] : second_largest;
  }
  const float first_scale = scale_of(first_largest);
  const float second_scale = scale_of(second_largest);
  encode_block(first.data(), second.data(), first_scale, second_scale, factors.salt, here.first, here.second);
  *here.first_scale = first_scale;
  *here.second_scale = second_scale;
}

Adam8bitMoments moments_of(const Adam8bitMoments& moments, std::int64_t block) {
  const std::int64_t at = block * kAdam8bitBlock;
  return {moments.first + at, moments.second + at, moments.first_scale + block, moments.second_scale + block};
}

void check_whole_blocks(std::int64_t count) {
  SM_CHECK(count % kAdam8bitBlock == 0, "8-bit moments come in whole blocks");
}

/// Parameters or gradients of one block in fp32: where they lie, or widened into `scratch`.
float* widened(float* values, float* /*scratch*/) {
  return values;
}
const float* widened(const float* values, float* /*scratch*/) {
  return values;
}
float* widened(const Bf16* values, float* scratch) {
  convert(scratch, values, kBlock);
  return scratch;
}

template <typename P>
void store(const UpdateRange& range, std::int64_t at, const float* updated) {
  P* resting = static_cast<P*>(range.parameters) + at;
  for (std::size_t i = 0; i < kBlock; ++i) {
    resting[i] = Element<P>::round(updated[i]);
    const float value = Element<P>::widen(resting[i]);
    if (range.working == nullptr) {
      continue;
    }
    if (range.working_type == base::DType::fp32) {
      (static_cast<float*>(range.working) + at)[i] = value;
    } else {
      (static_cast<Bf16*>(range.working) + at)[i] = Element<Bf16>::round(value);
    }
  }
}

}  // namespace

void adam8bit_update(float* parameters, const float* gradients, const Adam8bitMoments& moments, std::int64_t count,
                     const Adam8bitStep& step) {
  check_whole_blocks(count);
  const auto steps = static_cast<double>(step.step);
  const UpdateState state{.steps = step.step,
                          .applies = 1,
                          .coefficient = step.coefficient,
                          .bias_correction1 = 1 - std::pow(static_cast<double>(step.beta1), steps),
                          .bias_correction2 = 1 - std::pow(static_cast<double>(step.beta2), steps)};
  const Adam8bitFactors factors = adam8bit_factors(step, state);
  for (std::int64_t block = 0; block < count / kAdam8bitBlock; ++block) {
    const std::int64_t at = block * kAdam8bitBlock;
    update_block(parameters + at, gradients + at, moments_of(moments, block), factors);
  }
}

void adam8bit_update(const UpdateRange& range, const Adam8bitMoments& moments, const Adam8bitStep& rule,
                     const UpdateState* state) {
  check_whole_blocks(range.count);
  if (state->applies == 0) {
    return;
  }
  const Adam8bitFactors factors = adam8bit_factors(rule, *state);
  with_range_types(range, [&](auto p, auto g) {
    using P = decltype(p);
    using G = decltype(g);
    alignas(64) std::array<float, kBlock> parameter_scratch;
    alignas(64) std::array<float, kBlock> gradient_scratch;
    for (std::int64_t block = 0; block < range.count / kAdam8bitBlock; ++block) {
      const std::int64_t at = block * kAdam8bitBlock;
      float* parameters = widened(static_cast<P*>(range.parameters) + at, parameter_scratch.data());
      const float* gradients = widened(static_cast<const G*>(range.gradients) + at, gradient_scratch.data());
      update_block(parameters, gradients, moments_of(moments, block), factors);
      store<P>(range, at, parameters);
    }
  });
}

float adam8bit_first(std::int8_t code, float scale) {
  return decode_first(code, scale);
}

float adam8bit_second(std::uint8_t code, float scale) {
  return decode_second(code, scale);
}

}  // namespace shardmark::kernels
