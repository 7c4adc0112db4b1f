// 8-bit AdamW against the same arithmetic in double with moments that are not coded, and the properties of its codes.

#include "kernels/adam8bit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/adam8bit_core.hpp"
#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

constexpr std::size_t kBlock = kAdam8bitBlock;

struct State {
  explicit State(std::size_t count)
      : parameters(count, 0.5F),
        first(count, 0),
        second(count, 0),
        first_scale(count / kBlock, 0),
        second_scale(count / kBlock, 0) {}

  void update(const std::vector<float>& gradients, const Adam8bitStep& step) {
    adam8bit_update(parameters.data(), gradients.data(), {first.data(), second.data(), first_scale.data(), second_scale.data()},
                    static_cast<std::int64_t>(parameters.size()), step);
  }
  [[nodiscard]] float m(std::size_t i) const { return adam8bit_first(first[i], first_scale[i / kBlock]); }
  [[nodiscard]] float v(std::size_t i) const { return adam8bit_second(second[i], second_scale[i / kBlock]); }

  std::vector<float> parameters;
  std::vector<std::int8_t> first;
  std::vector<std::uint8_t> second;
  std::vector<float> first_scale;
  std::vector<float> second_scale;
};

std::vector<float> gradients_of(std::size_t count, std::int64_t step) {
  const base::RandomStream stream(3, "gradients", static_cast<std::uint64_t>(step));
  std::vector<float> gradients(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Magnitudes over six orders, as in a real model.
    gradients[i] = stream.normal(i) * std::pow(10.0F, static_cast<float>(i % 7) - 6.0F);
  }
  return gradients;
}

TEST(Adam8bit, FirstStepIsThatOfExactMoments) {
  State state(2 * kBlock);
  const auto gradients = gradients_of(2 * kBlock, 1);
  const Adam8bitStep step{.lr = 0.1F, .weight_decay = 0.25F, .coefficient = 0.5F, .step = 1};
  state.update(gradients, step);
  for (std::size_t i = 0; i < 2 * kBlock; ++i) {
    // m / (1 - b1) = g and sqrt(v / (1 - b2)) = |g| after one step.
    const double g = 0.5 * static_cast<double>(gradients[i]);
    const double expected = 0.5 * (1 - 0.1 * 0.25) - 0.1 * g / (std::fabs(g) + 1e-8);
    // About ten fp32 roundings of values below one, and bias corrections of betas rounded to fp32: (1 - b2) is off by up to
    // 2^-24 / 1e-3.
    EXPECT_NEAR(state.parameters[i], expected, 0.1 * 0x1p-24 / 1e-3 + 10 * 0x1p-24) << i;
  }
}

TEST(Adam8bit, CodesStandNextToTheirValues) {
  State state(kBlock);
  const auto gradients = gradients_of(kBlock, 1);
  state.update(gradients, {.lr = 0.1F, .step = 1});
  float largest = 0;
  for (const float gradient : gradients) {
    largest = std::max(largest, std::fabs(gradient));
  }
  for (std::size_t i = 0; i < kBlock; ++i) {
    // Neighbouring codes c and c + 1 are at most (2 c + 1) / 127^2 of the scale apart: twice the root of the value, and a bit.
    const float m = gradients[i] * (1 - 0.9F);
    const float m_scale = largest * (1 - 0.9F);
    EXPECT_NEAR(state.m(i), m, m_scale * (2 * std::sqrt(std::fabs(m) / m_scale) / 127 + 1.0F / (127 * 127)) * 1.001F) << i;
    EXPECT_GE(state.m(i) * m, 0) << "the sign stays";
    const float v = gradients[i] * gradients[i] * (1 - 0.999F);
    const float v_scale = largest * largest * (1 - 0.999F);
    const float root = std::pow(v / v_scale, 0.25F);
    EXPECT_NEAR(state.v(i), v,
                v_scale * (std::pow(root + 1.0F / 255, 4.0F) - std::pow(std::max(0.0F, root - 1.0F / 255), 4.0F)))
        << i;
    EXPECT_GT(state.v(i), 0) << "a second moment above zero stays above";
  }
}

TEST(Adam8bit, SecondMomentsDecayOnAverage) {
  // After one gradient only zeros follow: second moments must shrink as 0.999^t does, which is less than one code a step, so
  // that plain rounding would keep them for ever.
  State state(64 * kBlock);
  const base::RandomStream stream(5, "gradients");
  std::vector<float> gradients(64 * kBlock);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = 0.5F + 0.5F * stream.uniform(i);
  }
  state.update(gradients, {.lr = 0, .step = 1});
  double before = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    before += static_cast<double>(state.v(i));
  }
  const std::vector<float> none(gradients.size(), 0);
  constexpr int kSteps = 500;
  for (int step = 2; step < 2 + kSteps; ++step) {
    state.update(none, {.lr = 0, .step = step});
  }
  double after = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    after += static_cast<double>(state.v(i));
  }
  // A draw moves a value by at most a code, here at most 2.3 % of it (4 / 255 / 0.7), its deviation is at most half of that;
  // 500 draws: 26 %. The mean of 16,384 values: 0.2 %. Ten times that, since draws of near values may be alike.
  EXPECT_NEAR(after / before / std::pow(0.999, kSteps), 1, 0.02);
}

TEST(Adam8bit, EqualInputsGiveEqualCodesWhereverTheyLie) {
  State together(4 * kBlock);
  State apart(kBlock);
  for (std::int64_t step = 1; step <= 5; ++step) {
    const auto gradients = gradients_of(4 * kBlock, step);
    together.update(gradients, {.lr = 0.01F, .step = step});
    apart.update({gradients.begin() + 2 * kBlock, gradients.begin() + 3 * kBlock}, {.lr = 0.01F, .step = step});
  }
  for (std::size_t i = 0; i < kBlock; ++i) {
    EXPECT_EQ(together.parameters[2 * kBlock + i], apart.parameters[i]);
    EXPECT_EQ(together.first[2 * kBlock + i], apart.first[i]);
    EXPECT_EQ(together.second[2 * kBlock + i], apart.second[i]);
  }
}

/// The state that gives a step its numbers: of the rule's betas, which are fp32.
UpdateState state_of(const Adam8bitStep& step) {
  const auto steps = static_cast<double>(step.step);
  return {.steps = step.step,
          .applies = 1,
          .coefficient = step.coefficient,
          .bias_correction1 = 1 - std::pow(static_cast<double>(step.beta1), steps),
          .bias_correction2 = 1 - std::pow(static_cast<double>(step.beta2), steps)};
}

/// One block in the device's way: element by element, no vectors.
void update_one_block(State& state, std::size_t block, const std::vector<float>& gradients, const Adam8bitStep& step) {
  const Adam8bitFactors factors = adam8bit_factors(step, state_of(step));
  std::vector<float> first(kBlock);
  std::vector<float> second(kBlock);
  float first_largest = 0;
  float second_largest = 0;
  for (std::size_t k = 0; k < kBlock; ++k) {
    const std::size_t i = block * kBlock + k;
    first[k] = decode_first(state.first[i], state.first_scale[block]);
    second[k] = decode_second(state.second[i], state.second_scale[block]);
    step_element(factors, state.parameters[i], gradients[i], first[k], second[k]);
    first_largest = std::max(first_largest, std::fabs(first[k]));
    second_largest = std::max(second_largest, second[k]);
  }
  state.first_scale[block] = scale_of(first_largest);
  state.second_scale[block] = scale_of(second_largest);
  for (std::size_t k = 0; k < kBlock; ++k) {
    const std::size_t i = block * kBlock + k;
    state.first[i] = encode_first(first[k], inverse_of(state.first_scale[block]), factors.salt);
    state.second[i] = encode_second(second[k], inverse_of(state.second_scale[block]), factors.salt);
  }
}

void expect_same_states(const State& a, const State& b) {
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.first, b.first);
  EXPECT_EQ(a.second, b.second);
  EXPECT_EQ(a.first_scale, b.first_scale);
  EXPECT_EQ(a.second_scale, b.second_scale);
}

TEST(Adam8bit, VectorsAndSingleElementsGiveTheSameCodes) {
  State vectors(8 * kBlock);
  State singles(8 * kBlock);
  for (std::int64_t count = 1; count <= 20; ++count) {
    auto gradients = gradients_of(8 * kBlock, count);
    std::fill_n(gradients.begin(), kBlock, 0.0F);
    for (std::size_t i = kBlock; i < 2 * kBlock; ++i) {
      gradients[i] *= 1e-35F;  // scales near the smallest normal number
    }
    const Adam8bitStep step{.lr = 0.01F, .weight_decay = 0.1F, .coefficient = 0.7F, .step = count};
    vectors.update(gradients, step);
    for (std::size_t block = 0; block < 8; ++block) {
      update_one_block(singles, block, gradients, step);
    }
    expect_same_states(vectors, singles);
  }
}

template <typename P, typename G>
void expect_types_widened() {
  constexpr std::size_t kCount = 5 * kBlock;
  State wide(kCount);
  State narrow(kCount);
  std::vector<P> parameters(kCount, Element<P>::round(0.5F));
  for (std::int64_t count = 1; count <= 5; ++count) {
    std::vector<G> gradients;
    std::vector<float> widened;
    for (const float gradient : gradients_of(kCount, count)) {
      gradients.push_back(Element<G>::round(gradient));
      widened.push_back(Element<G>::widen(gradients.back()));
    }
    const Adam8bitStep step{.lr = 0.01F, .weight_decay = 0.1F, .coefficient = 0.7F, .step = count};
    const UpdateState state = state_of(step);
    for (std::size_t i = 0; i < kCount; ++i) {
      wide.parameters[i] = Element<P>::widen(parameters[i]);
    }
    wide.update(widened, step);
    std::vector<Bf16> bf16_copy(kCount);
    std::vector<float> fp32_copy(kCount);
    UpdateRange range{.parameters = parameters.data(),
                      .parameters_type = testing::kTypeOf<P>,
                      .gradients = gradients.data(),
                      .gradients_type = testing::kTypeOf<G>,
                      .count = static_cast<std::int64_t>(kCount)};
    if (count % 2 == 0) {
      range.working = fp32_copy.data();
      range.working_type = base::DType::fp32;
    } else {
      range.working = bf16_copy.data();
    }
    // What the rule says of the step itself is not read.
    Adam8bitStep rule = step;
    rule.step = 77;
    rule.coefficient = 0;
    adam8bit_update(range, {narrow.first.data(), narrow.second.data(), narrow.first_scale.data(), narrow.second_scale.data()},
                    rule, &state);
    for (std::size_t i = 0; i < kCount; ++i) {
      const float resting = Element<P>::widen(parameters[i]);
      EXPECT_EQ(resting, Element<P>::widen(Element<P>::round(wide.parameters[i])));
      if (count % 2 == 0) {
        EXPECT_EQ(fp32_copy[i], resting);
      } else {
        EXPECT_EQ(bf16_copy[i].bits, Element<Bf16>::round(resting).bits);
      }
    }
    EXPECT_EQ(narrow.first, wide.first);
    EXPECT_EQ(narrow.second, wide.second);
    EXPECT_EQ(narrow.first_scale, wide.first_scale);
    EXPECT_EQ(narrow.second_scale, wide.second_scale);
  }
}

TEST(Adam8bit, StepsInMemoryAndOtherTypesGiveTheSameCodes) {
  expect_types_widened<float, float>();
  expect_types_widened<float, Bf16>();
  expect_types_widened<Bf16, float>();
  expect_types_widened<Bf16, Bf16>();
}

TEST(Adam8bit, AStepThatDoesNotApplyChangesNothing) {
  State state(kBlock);
  const State before = state;
  const auto gradients = gradients_of(kBlock, 1);
  const UpdateState skipped{.steps = 3};
  adam8bit_update({.parameters = state.parameters.data(), .gradients = gradients.data(), .count = kAdam8bitBlock},
                  {state.first.data(), state.second.data(), state.first_scale.data(), state.second_scale.data()}, {.lr = 1},
                  &skipped);
  expect_same_states(state, before);
}

TEST(Adam8bit, ZerosAndTheSmallestNumbers) {
  State state(kBlock);
  state.update(std::vector<float>(kBlock, 0), {.lr = 1, .step = 1});
  state.update(std::vector<float>(kBlock, 1e-30F), {.lr = 1e-3F, .step = 2});
  state.update(std::vector<float>(kBlock, std::numeric_limits<float>::denorm_min()), {.lr = 1e-3F, .step = 3});
  for (std::size_t i = 0; i < kBlock; ++i) {
    EXPECT_FLOAT_EQ(state.parameters[i], 0.5F);
    EXPECT_TRUE(std::isfinite(state.m(i)) && std::isfinite(state.v(i)));
  }
  EXPECT_THROW(adam8bit_update(nullptr, nullptr, {}, 100, {}), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::kernels
