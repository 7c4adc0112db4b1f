// 8-bit AdamW against the same arithmetic in double with moments that are not coded, and the properties of its codes.

#include "kernels/adam8bit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

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
