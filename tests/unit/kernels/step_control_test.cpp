// From a step's sums to its norm, clipping and bias corrections: the same bits as the formulas of the host's loop.

#include "kernels/step_control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "optim/vector_ops.hpp"

namespace shardmark::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// As the trainer clips.
float coefficient_of(double clip, double norm) {
  return clip > 0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0F;
}

TEST(FinishNorm, FastIsTheRootAndClipsAsTheTrainer) {
  for (const double squares : {0.0, 2.0, 1e-300, 0.12345678901234, 3e9}) {
    for (const double clip : {0.0, 1.0, 0.3, 1e-9}) {
      StepScalars scalars;
      scalars.squares = squares;
      scalars.loss = 2.5;
      finish_norm(&scalars, {.clip = clip});
      EXPECT_EQ(scalars.norm, std::sqrt(squares));
      EXPECT_EQ(scalars.coefficient, coefficient_of(clip, std::sqrt(squares)));
      EXPECT_EQ(scalars.finite, 1);
      EXPECT_EQ(scalars.applied, 1);
    }
  }
}

TEST(FinishNorm, WhatIsNotFiniteIsNotApplied) {
  for (const double bad : {kInf, kNan}) {
    StepScalars scalars;
    scalars.squares = bad;
    finish_norm(&scalars, {.clip = 1});
    EXPECT_EQ(scalars.finite, 0);
    EXPECT_EQ(scalars.applied, 0);
    scalars.squares = 4;
    scalars.loss = bad;
    finish_norm(&scalars, {.clip = 1});
    EXPECT_EQ(scalars.norm, 2);
    EXPECT_EQ(scalars.finite, 1);
    EXPECT_EQ(scalars.applied, 0) << "a norm without a loss";
    scalars.loss = -bad;
    finish_norm(&scalars, {.clip = 1});
    EXPECT_EQ(scalars.applied, 0);
  }
}

TEST(FinishNorm, ExactEqualsTheSumOverRanks) {
  // Low words that carry, a high word that does not fit a double's mantissa, gradients from tiny to huge.
  const std::vector<std::vector<optim::ExactSquares>> sums{
      {{5, 0}},
      {{~0ULL, 3}, {1, 4}, {~0ULL, 0}},
      {{0x123456789abcdef1ULL, 0x0123456789abcdefULL}, {0xfedcba9876543210ULL, 7}},
      {{0, 0}, {0, 0}}};
  for (const auto& ranks : sums) {
    std::vector<std::uint64_t> gathered;
    optim::ExactSquares total;
    for (const auto& sum : ranks) {
      gathered.insert(gathered.end(), {sum.low, sum.high});
      total = optim::add(total, sum);
    }
    for (const float largest : {0.0F, 1e-45F, 3e-30F, 0.7F, 3e38F}) {
      StepScalars scalars;
      scalars.largest = largest;
      scalars.squares = kNan;  // not read
      finish_norm(&scalars, {.clip = 0.5, .gathered = gathered.data(), .num_gathered = static_cast<int>(ranks.size())});
      const double expected = optim::norm_of(total, optim::exact_scale_exponent(largest));
      EXPECT_EQ(scalars.norm, expected);
      EXPECT_EQ(scalars.coefficient, coefficient_of(0.5, expected));
      EXPECT_EQ(scalars.applied, 1);
    }
  }
}

TEST(FinishNorm, ExactWithoutAFiniteLargestIsNaN) {
  const std::array<std::uint64_t, 2> gathered{1, 0};
  for (const double bad : {kInf, kNan}) {
    StepScalars scalars;
    scalars.largest = static_cast<float>(bad);
    finish_norm(&scalars, {.gathered = gathered.data(), .num_gathered = 1});
    EXPECT_TRUE(std::isnan(scalars.norm));
    EXPECT_EQ(scalars.finite, 0);
    EXPECT_EQ(scalars.applied, 0);
  }
}

TEST(BeginUpdate, CountsWhatAppliesAndCorrectsForIt) {
  UpdateState state;
  StepScalars scalars;
  scalars.coefficient = 0.25F;
  for (int step = 1; step <= 50; ++step) {
    scalars.applied = 1;
    begin_update(&scalars, &state, 0.9, 0.999);
    EXPECT_EQ(state.steps, step);
    EXPECT_EQ(state.applies, 1);
    EXPECT_EQ(state.coefficient, 0.25F);
    EXPECT_EQ(state.bias_correction1, 1 - std::pow(0.9, step));
    EXPECT_EQ(state.bias_correction2, 1 - std::pow(0.999, step));
    scalars.applied = 0;
    begin_update(&scalars, &state, 0.9, 0.999);
    EXPECT_EQ(state.steps, step) << "a skipped step is not counted";
    EXPECT_EQ(state.applies, 0);
    EXPECT_EQ(state.bias_correction1, 1 - std::pow(0.9, step));
  }
}

}  // namespace
}  // namespace shardmark::kernels
