// Norms and sums over flat ranges against plain loops.

#include "optim/vector_ops.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/random.hpp"

namespace shardmark::optim {
namespace {

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = base::RandomStream(1, "numbers").normal(i);
  }
  return values;
}

TEST(VectorOps, SquaresAgreeWithAPlainLoop) {
  for (const std::size_t count : {0U, 1U, 15U, 17U, 4096U, 10007U}) {
    const auto values = numbers(count);
    long double sum = 0;
    for (const float value : values) {
      sum += static_cast<long double>(value) * static_cast<long double>(value);
    }
    // Each of count + 16 additions in double rounds by at most 2^-53 of the sum.
    EXPECT_NEAR(sum_of_squares(values), static_cast<double>(sum),
                static_cast<double>(count + 16) * 0x1p-53 * static_cast<double>(sum));
  }
}

TEST(VectorOps, ExactSumDoesNotSeeShards) {
  auto values = numbers(1009);
  values[3] = 1e-30F;
  values[500] = -1e20F;
  const int exponent = exact_scale_exponent(largest_magnitude(values));
  const auto whole = exact_sum_of_squares(values, exponent);
  for (const std::size_t cut : {1U, 16U, 333U, 1008U}) {
    const std::span<const float> all(values);
    const auto sum = add(exact_sum_of_squares(all.subspan(cut), exponent), exact_sum_of_squares(all.first(cut), exponent));
    EXPECT_EQ(sum, whole);
  }
  EXPECT_NEAR(norm_of(whole, exponent), std::sqrt(sum_of_squares(values)), 1e-9 * 1e20);
}

TEST(VectorOps, ExactNormOfKnownNumbers) {
  // Four shards of 3, 4, 0 and 12 have the norm 13.
  const std::vector<float> values{3, 4, 0, 12};
  const int exponent = exact_scale_exponent(12);
  EXPECT_EQ(norm_of(exact_sum_of_squares(values, exponent), exponent), 13.0);
  EXPECT_EQ(norm_of(exact_sum_of_squares({}, exact_scale_exponent(0)), exact_scale_exponent(0)), 0.0);
}

TEST(VectorOps, ExactNormOfExtremes) {
  for (const float value :
       {std::numeric_limits<float>::max(), std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min()}) {
    const std::vector<float> values{value, value, value, value};
    const int exponent = exact_scale_exponent(value);
    EXPECT_NEAR(norm_of(exact_sum_of_squares(values, exponent), exponent) / (2.0 * static_cast<double>(value)), 1.0, 1e-15);
  }
}

TEST(VectorOps, LargestMagnitudeShowsNan) {
  EXPECT_EQ(largest_magnitude(std::vector<float>{1, -7, 2}), 7.0F);
  EXPECT_TRUE(std::isnan(largest_magnitude(std::vector<float>{1, std::nanf(""), 2})));
  EXPECT_TRUE(std::isinf(largest_magnitude(std::vector<float>{1, -INFINITY, 2})));
}

TEST(VectorOps, HashSeesEveryBit) {
  auto values = numbers(37);
  const auto before = hash_bytes(std::as_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      const float kept = values[i];
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1U << bit));
      EXPECT_NE(hash_bytes(std::as_bytes(std::span(values))), before);
      values[i] = kept;
    }
  }
}

TEST(VectorOps, AddsInPlace) {
  auto sum = numbers(133);
  const auto part = numbers(133);
  add_in_place(sum, part);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i], part[i] + part[i]);
  }
}

/// Every pair of types, at sizes around a block, with a value that is not finite at any place or none.
template <typename Into, typename From>
void expect_moved(bool add) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t count : {0U, 1U, 17U, 4096U, 4099U}) {
    for (const float odd : {1.0F, std::nanf(""), -infinity, std::numeric_limits<float>::max()}) {
      std::vector<From> from;
      for (const float value : numbers(count)) {
        from.push_back(kernels::Element<From>::round(value));
      }
      if (count > 0) {
        from.back() = kernels::Element<From>::round(odd);
      }
      bool finite = true;
      std::vector<Into> into(count, kernels::Element<Into>::round(0.5F));
      std::vector<Into> expected;
      for (const From element : from) {
        const float value = kernels::Element<From>::widen(element);
        finite = finite && std::isfinite(value);
        expected.push_back(kernels::Element<Into>::round(add ? 0.5F + value : value));
      }
      if constexpr (std::is_same_v<Into, float>) {
        EXPECT_EQ(add ? add_checked(into, std::span<const From>(from)) : copy_checked(into, std::span<const From>(from)),
                  finite);
      } else {
        EXPECT_EQ(copy_checked(into, std::span<const From>(from)), finite);
      }
      EXPECT_TRUE(count == 0 || std::memcmp(into.data(), expected.data(), count * sizeof(Into)) == 0) << count << ' ' << odd;
    }
  }
}

TEST(VectorOps, GradientsAreMovedAndLookedAtInEveryType) {
  using kernels::Bf16;
  for (const bool add : {false, true}) {
    expect_moved<float, float>(add);
    expect_moved<float, Bf16>(add);
  }
  expect_moved<Bf16, Bf16>(false);
  expect_moved<Bf16, float>(false);
}

}  // namespace
}  // namespace shardmark::optim
