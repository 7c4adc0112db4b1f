// Sums of squares and largest magnitudes: the order of the double sum against a plain evaluation of it, the others against
// their oracles in optim, bit for bit.

#include "kernels/squares.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "optim/vector_ops.hpp"
#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::kKernelSizes;
using testing::kTypeOf;
using testing::normal_elements;

template <typename T>
class Squares : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Squares, Types);

template <typename T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> wide;
  for (const T value : values) {
    wide.push_back(Element<T>::widen(value));
  }
  return wide;
}

/// The tree over 256 lanes from the root down: lanes that differ by `step` meet.
double tree(const std::vector<double>& lanes, std::size_t lane, std::size_t step) {
  return step == 256 ? lanes[lane] : tree(lanes, lane, 2 * step) + tree(lanes, lane + step, 2 * step);
}

/// The documented order, written down as it reads: groups of 8 go round 1024 x 256 lanes.
double expected_sum_of_squares(const std::vector<float>& values) {
  std::vector<std::vector<double>> blocks(1024, std::vector<double>(256, 0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t lane = i / 8 % (1024 * 256);
    blocks[lane / 256][lane % 256] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  std::vector<double> totals(256, 0);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    totals[b % 256] += tree(blocks[b], 0, 1);
  }
  return tree(totals, 0, 1);
}

TYPED_TEST(Squares, SumHasTheDocumentedOrder) {
  std::vector<std::int64_t> sizes(kKernelSizes.begin(), kKernelSizes.end());
  sizes.push_back(2 * (std::int64_t{1} << 21) + 4099);  // beyond one round of the lanes, twice
  for (const std::int64_t size : sizes) {
    const auto values = normal_elements<TypeParam>("squares", size, 1e-3F);
    StepScalars scalars;
    sum_of_squares(values.data(), kTypeOf<TypeParam>, size, &scalars);
    EXPECT_EQ(scalars.squares, expected_sum_of_squares(widened(values))) << size;
    // Any two orders of n additions of positive numbers differ by at most 2 n roundings.
    const double serial = optim::sum_of_squares(widened(values));
    EXPECT_NEAR(scalars.squares, serial, serial * static_cast<double>(2 * size) * 0x1p-53) << size;
  }
}

// 1.5^2 swallows 2^-52, half a unit in its last place, but not the sum of two of them: what is added first shows.
TYPED_TEST(Squares, LanesOfABlockMeetBeforeBlocksAndRoundsOfALaneOneByOne) {
  const TypeParam zero = Element<TypeParam>::round(0);
  const TypeParam large = Element<TypeParam>::round(1.5F);
  const TypeParam tiny = Element<TypeParam>::round(0x1p-26F);
  constexpr std::size_t kBlock = 256 * 8;
  constexpr std::size_t kRound = 1024 * kBlock;
  const auto sum_with_tiny = [&](std::size_t one, std::size_t other) {
    std::vector<TypeParam> values(kRound + 8, zero);
    values[0] = large;
    values[one] = tiny;
    values[other] = tiny;
    StepScalars scalars;
    sum_of_squares(values.data(), kTypeOf<TypeParam>, static_cast<std::int64_t>(values.size()), &scalars);
    return scalars.squares;
  };
  EXPECT_EQ(sum_with_tiny(512 * kBlock, 512 * kBlock + 8), 2.25 + 0x1p-51) << "two lanes of another block";
  EXPECT_EQ(sum_with_tiny(1023 * kBlock, 1023 * kBlock + 7), 2.25 + 0x1p-51) << "one lane of another block";
  EXPECT_EQ(sum_with_tiny(1, kRound), 2.25) << "the same lane, in two rounds";
  EXPECT_EQ(sum_with_tiny(256 * kBlock, 512 * kBlock), 2.25) << "blocks of one last lane";
}

TYPED_TEST(Squares, SumsAccumulate) {
  const auto values = normal_elements<TypeParam>("squares", 33);
  StepScalars scalars;
  sum_of_squares(values.data(), kTypeOf<TypeParam>, 33, &scalars);
  const double once = scalars.squares;
  sum_of_squares(values.data(), kTypeOf<TypeParam>, 33, &scalars);
  EXPECT_EQ(scalars.squares, once + once);
}

TYPED_TEST(Squares, SumKeepsWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto values = normal_elements<TypeParam>("squares", 10'007);
    values[9'999] = Element<TypeParam>::round(bad);
    StepScalars scalars;
    sum_of_squares(values.data(), kTypeOf<TypeParam>, 10'007, &scalars);
    EXPECT_FALSE(std::isfinite(scalars.squares));
  }
}

TYPED_TEST(Squares, LargestEqualsItsOracle) {
  for (const std::int64_t size : kKernelSizes) {
    const auto values = normal_elements<TypeParam>("largest", size);
    StepScalars scalars;
    largest_magnitude(values.data(), kTypeOf<TypeParam>, size, &scalars);
    EXPECT_EQ(scalars.largest, optim::largest_magnitude(widened(values))) << size;
    scalars.largest = 1e9F;
    largest_magnitude(values.data(), kTypeOf<TypeParam>, size, &scalars);
    EXPECT_EQ(scalars.largest, 1e9F) << "what was there before is larger";
  }
}

TYPED_TEST(Squares, LargestOfNegativesInfinityAndNaN) {
  auto values = normal_elements<TypeParam>("largest", 100);
  values[7] = Element<TypeParam>::round(-64);
  StepScalars scalars;
  largest_magnitude(values.data(), kTypeOf<TypeParam>, 100, &scalars);
  EXPECT_EQ(scalars.largest, 64);
  values[8] = Element<TypeParam>::round(-std::numeric_limits<float>::infinity());
  largest_magnitude(values.data(), kTypeOf<TypeParam>, 100, &scalars);
  EXPECT_EQ(scalars.largest, std::numeric_limits<float>::infinity());
  values[3] = Element<TypeParam>::round(-std::numeric_limits<float>::quiet_NaN());
  largest_magnitude(values.data(), kTypeOf<TypeParam>, 100, &scalars);
  EXPECT_TRUE(std::isnan(scalars.largest));
  largest_magnitude(values.data(), kTypeOf<TypeParam>, 3, &scalars);
  EXPECT_TRUE(std::isnan(scalars.largest)) << "a NaN of an earlier call stays";
}

TYPED_TEST(Squares, ExactSumEqualsItsOracle) {
  // Scales where 2^e alone would overflow a double, where squares of the smallest round to zero, and the largest numbers.
  for (const float scale : {1e-38F, 1e-20F, 1.0F, 1e37F}) {
    for (const std::int64_t size : kKernelSizes) {
      const auto values = normal_elements<TypeParam>("exact", size, scale);
      const auto wide = widened(values);
      StepScalars scalars;
      scalars.largest = optim::largest_magnitude(wide);
      exact_sum_of_squares(values.data(), kTypeOf<TypeParam>, size, &scalars);
      auto expected = optim::exact_sum_of_squares(wide, optim::exact_scale_exponent(scalars.largest));
      EXPECT_EQ(scalars.exact_squares[0], expected.low) << scale << ", " << size;
      EXPECT_EQ(scalars.exact_squares[1], expected.high) << scale << ", " << size;
      exact_sum_of_squares(values.data(), kTypeOf<TypeParam>, size, &scalars);
      expected = optim::add(expected, expected);
      EXPECT_EQ(scalars.exact_squares[0], expected.low) << scale << ", " << size;
      EXPECT_EQ(scalars.exact_squares[1], expected.high) << scale << ", " << size;
    }
  }
}

TYPED_TEST(Squares, NothingIsAddedWhereTheLargestIsNotFinite) {
  const auto values = normal_elements<TypeParam>("exact", 100);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    StepScalars scalars;
    scalars.largest = bad;
    exact_sum_of_squares(values.data(), kTypeOf<TypeParam>, 100, &scalars);
    EXPECT_EQ(scalars.exact_squares[0], 0U);
    EXPECT_EQ(scalars.exact_squares[1], 0U);
  }
}

TEST(SquaresOfOtherTypes, AreRefused) {
  StepScalars scalars;
  EXPECT_THROW(sum_of_squares(nullptr, base::DType::fp64, 0, &scalars), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::kernels
