// The device's sums of squares, magnitudes, moves and step control against their host builds: the same bits. Skips with a
// reason where there is no device.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/move.hpp"
#include "kernels/squares.hpp"
#include "kernels/step_control.hpp"
#include "tests/support/elements.hpp"
#include "tests/support/on_device.hpp"

namespace shardmark::kernels {
namespace {

using testing::DeviceArray;
using testing::kKernelSizes;
using testing::kTypeOf;
using testing::normal_elements;

// Elements behind an aligned address: none, one, and one less than a pack of bf16.
constexpr std::size_t kShifts[] = {0, 1, 7};

using StepKernelsOnDevice = testing::OnDevice;

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> all(kKernelSizes.begin(), kKernelSizes.end());
  all.push_back(2 * (std::int64_t{1} << 21) + 4099);  // beyond one round of the lanes of a sum of squares
  return all;
}

template <typename T>
void expect_squares_equal_to_host() {
  for (const std::int64_t size : sizes()) {
    const auto values = normal_elements<T>("squares", size, 1e-3F);
    StepScalars expected;
    sum_of_squares(values.data(), kTypeOf<T>, size, &expected);
    sum_of_squares(values.data(), kTypeOf<T>, size, &expected);
    largest_magnitude(values.data(), kTypeOf<T>, size, &expected);
    exact_sum_of_squares(values.data(), kTypeOf<T>, size, &expected);
    exact_sum_of_squares(values.data(), kTypeOf<T>, size, &expected);
    for (const std::size_t shift : kShifts) {
      const DeviceArray<T> copy(values, shift);
      const DeviceArray<StepScalars> scalars{StepScalars{}};
      const DeviceArray<double> scratch(
          std::vector<double>(static_cast<std::size_t>(sum_of_squares_scratch_bytes()) / sizeof(double)));
      sum_of_squares_device(copy.data(), kTypeOf<T>, size, scalars.data(), scratch.data(), nullptr);
      sum_of_squares_device(copy.data(), kTypeOf<T>, size, scalars.data(), scratch.data(), nullptr);
      largest_magnitude_device(copy.data(), kTypeOf<T>, size, scalars.data(), nullptr);
      exact_sum_of_squares_device(copy.data(), kTypeOf<T>, size, scalars.data(), nullptr);
      exact_sum_of_squares_device(copy.data(), kTypeOf<T>, size, scalars.data(), nullptr);
      const StepScalars found = scalars.value();
      EXPECT_EQ(found.squares, expected.squares) << size << " elements, shift " << shift;
      EXPECT_EQ(found.largest, expected.largest) << size << " elements, shift " << shift;
      EXPECT_EQ(found.exact_squares[0], expected.exact_squares[0]) << size << " elements, shift " << shift;
      EXPECT_EQ(found.exact_squares[1], expected.exact_squares[1]) << size << " elements, shift " << shift;
    }
  }
}

TEST_F(StepKernelsOnDevice, SquaresEqualTheHost) {
  expect_squares_equal_to_host<float>();
  expect_squares_equal_to_host<Bf16>();
}

TEST_F(StepKernelsOnDevice, ExactSquaresOfExtremeScalesEqualTheHost) {
  for (const float scale : {1e-38F, 1e-20F, 1e37F}) {
    const auto values = normal_elements<float>("exact", 10'007, scale);
    const DeviceArray<float> copy(values);
    StepScalars expected;
    const DeviceArray<StepScalars> scalars(expected);
    largest_magnitude(values.data(), base::DType::fp32, 10'007, &expected);
    exact_sum_of_squares(values.data(), base::DType::fp32, 10'007, &expected);
    largest_magnitude_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
    exact_sum_of_squares_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
    EXPECT_EQ(scalars.value().exact_squares[0], expected.exact_squares[0]) << scale;
    EXPECT_EQ(scalars.value().exact_squares[1], expected.exact_squares[1]) << scale;
  }
}

TEST_F(StepKernelsOnDevice, LowWordsThatWrapCarry) {
  // So near its wrap that any addition carries.
  const auto values = normal_elements<float>("exact", 10'007);
  StepScalars expected;
  expected.exact_squares[0] = ~0ULL - 5;
  expected.exact_squares[1] = 9;
  const DeviceArray<StepScalars> scalars(expected);
  const DeviceArray<float> copy(values);
  largest_magnitude(values.data(), base::DType::fp32, 10'007, &expected);
  exact_sum_of_squares(values.data(), base::DType::fp32, 10'007, &expected);
  largest_magnitude_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
  exact_sum_of_squares_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
  EXPECT_EQ(scalars.value().exact_squares[0], expected.exact_squares[0]);
  EXPECT_EQ(scalars.value().exact_squares[1], expected.exact_squares[1]);
}

TEST_F(StepKernelsOnDevice, WhatIsNotFiniteShows) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto values = normal_elements<float>("squares", 10'007);
    values[9'999] = -bad;
    const DeviceArray<float> copy(values);
    const DeviceArray<StepScalars> scalars{StepScalars{}};
    const DeviceArray<double> scratch(
        std::vector<double>(static_cast<std::size_t>(sum_of_squares_scratch_bytes()) / sizeof(double)));
    sum_of_squares_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), scratch.data(), nullptr);
    largest_magnitude_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
    exact_sum_of_squares_device(copy.data(), base::DType::fp32, 10'007, scalars.data(), nullptr);
    finish_norm_device(scalars.data(), {.clip = 1}, nullptr);
    const StepScalars found = scalars.value();
    EXPECT_FALSE(std::isfinite(found.squares));
    EXPECT_EQ(std::isnan(found.largest), std::isnan(bad));
    EXPECT_FALSE(std::isfinite(found.largest));
    EXPECT_EQ(found.exact_squares[0], 0U);
    EXPECT_EQ(found.finite, 0);
    EXPECT_EQ(found.applied, 0);
  }
}

void expect_norm_equal_to_host(StepScalars scalars, const NormRule& rule, const std::vector<std::uint64_t>& gathered) {
  const DeviceArray<StepScalars> copy(scalars);
  const DeviceArray<std::uint64_t> sums(gathered);
  NormRule on_host = rule;
  NormRule on_device = rule;
  if (!gathered.empty()) {
    on_host.gathered = gathered.data();
    on_device.gathered = sums.data();
    on_host.num_gathered = on_device.num_gathered = static_cast<int>(gathered.size() / 2);
  }
  finish_norm(&scalars, on_host);
  finish_norm_device(copy.data(), on_device, nullptr);
  const StepScalars found = copy.value();
  EXPECT_TRUE(found.norm == scalars.norm || (std::isnan(found.norm) && std::isnan(scalars.norm)));
  EXPECT_EQ(found.coefficient, scalars.coefficient);
  EXPECT_EQ(found.finite, scalars.finite);
  EXPECT_EQ(found.applied, scalars.applied);
}

TEST_F(StepKernelsOnDevice, NormAndClippingEqualTheHost) {
  for (const double clip : {0.0, 0.3, 5.0}) {
    for (const double squares : {0.0, 2.0, 0.12345678901234, std::numeric_limits<double>::infinity()}) {
      for (const double loss : {2.5, std::numeric_limits<double>::quiet_NaN()}) {
        StepScalars scalars;
        scalars.squares = squares;
        scalars.loss = loss;
        expect_norm_equal_to_host(scalars, {.clip = clip}, {});
      }
    }
    for (const float largest : {0.0F, 1e-45F, 3e-30F, 0.7F, 3e38F, std::numeric_limits<float>::infinity()}) {
      StepScalars scalars;
      scalars.largest = largest;
      expect_norm_equal_to_host(scalars, {.clip = clip}, {~0ULL, 3, 1, 4, 0x123456789abcdef1ULL, 0x0123456789abcdefULL});
    }
  }
}

TEST_F(StepKernelsOnDevice, BiasCorrectionsEqualTheHostsNearly) {
  StepScalars scalars;
  scalars.applied = 1;
  scalars.coefficient = 0.5F;
  UpdateState expected;
  const DeviceArray<StepScalars> copy(scalars);
  const DeviceArray<UpdateState> state(expected);
  for (int step = 1; step <= 100; ++step) {
    begin_update(&scalars, &expected, 0.9, 0.999);
    begin_update_device(copy.data(), state.data(), 0.9, 0.999, nullptr);
    const UpdateState found = state.value();
    EXPECT_EQ(found.steps, expected.steps);
    EXPECT_EQ(found.applies, 1);
    EXPECT_EQ(found.coefficient, 0.5F);
    // CUDA's pow is within 2 units in the last place, that of glibc within 1, of numbers below one: 3 x 2^-53. Each difference
    // rounds by half a unit.
    EXPECT_NEAR(found.bias_correction1, expected.bias_correction1, 0x1p-51);
    EXPECT_NEAR(found.bias_correction2, expected.bias_correction2, 0x1p-51);
  }
}

template <typename Into, typename From>
void expect_moves_equal_to_host(bool add) {
  for (const std::int64_t size : kKernelSizes) {
    const auto from = normal_elements<From>("from", size);
    const auto before = normal_elements<Into>("into", size, 100);
    for (const float scale : {1.0F, 0.3F}) {
      auto expected = before;
      Move move{.into = expected.data(),
                .into_type = kTypeOf<Into>,
                .from = from.data(),
                .from_type = kTypeOf<From>,
                .count = size,
                .scale = scale,
                .add = add};
      move_scaled(move);
      for (const std::size_t into_shift : kShifts) {
        for (const std::size_t from_shift : kShifts) {
          const DeviceArray<From> source(from, from_shift);
          const DeviceArray<Into> target(before, into_shift);
          const DeviceArray<std::int32_t> flag(0);
          move.into = target.data();
          move.from = source.data();
          move.not_finite = flag.data();
          move_scaled_device(move, nullptr);
          EXPECT_TRUE(same_bits(target.values(), expected))
              << size << " elements, scale " << scale << ", shifts " << into_shift << " and " << from_shift;
          EXPECT_EQ(flag.value(), 0);
        }
      }
    }
  }
}

TEST_F(StepKernelsOnDevice, MovesEqualTheHost) {
  expect_moves_equal_to_host<float, float>(false);
  expect_moves_equal_to_host<float, Bf16>(false);
  expect_moves_equal_to_host<Bf16, float>(false);
  expect_moves_equal_to_host<Bf16, Bf16>(false);
  expect_moves_equal_to_host<float, float>(true);
  expect_moves_equal_to_host<float, Bf16>(true);
}

TEST_F(StepKernelsOnDevice, MovesSayWhatIsNotFinite) {
  for (const std::size_t at : {0U, 5000U, 10'006U}) {
    auto from = normal_elements<float>("from", 10'007);
    from[at] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> source(from);
    const DeviceArray<float> target(from);
    const DeviceArray<std::int32_t> flag(0);
    move_scaled_device({.into = target.data(), .from = source.data(), .count = 10'007, .not_finite = flag.data()}, nullptr);
    EXPECT_EQ(flag.value(), 1);
    move_scaled_device({.into = target.data(), .from = source.data(), .count = 0, .not_finite = flag.data()}, nullptr);
    EXPECT_EQ(flag.value(), 1) << "a flag of an earlier move stays";
  }
}

}  // namespace
}  // namespace shardmark::kernels
