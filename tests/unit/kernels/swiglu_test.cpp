// The gate of SwiGLU and its gradients against the formulas in double, and the exponential below them.

#include "kernels/swiglu.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::kFp32Rounding;
using testing::kStoring;
using testing::value_of;

constexpr double kOfExponential = 6 * kFp32Rounding;  // three units in the last place

TEST(Exponential, StaysWithinThreeUnitsInTheLastPlace) {
  for (std::int64_t i = -87 * 4096; i <= 88 * 4096; ++i) {
    const auto x = static_cast<float>(i) / 4096.0F;
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(exponential(x)) / expected, 1, kOfExponential) << x;
  }
}

TEST(Exponential, HasItsValuesAtTheEnds) {
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-88.0F), 0.0F);
  EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_EQ(exponential(1000.0F), exponential(88.0F));
  EXPECT_TRUE(std::isfinite(exponential(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

template <typename T>
struct SwigluTest : ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(SwigluTest, Types);

TYPED_TEST(SwigluTest, AgreesWithTheFormulas) {
  for (const std::int64_t count : {1, 15, 16, 1009}) {
    const auto gate = testing::normal_elements<TypeParam>("gate", count, 12);  // far into both ends of the sigmoid
    const auto up = testing::normal_elements<TypeParam>("up", count);
    const auto dy = testing::normal_elements<TypeParam>("dy", count);
    std::vector<TypeParam> y(gate.size());
    std::vector<TypeParam> dgate(gate.size());
    std::vector<TypeParam> dup(gate.size());
    swiglu(gate.data(), up.data(), count, y.data());
    swiglu_backward<TypeParam>({dy.data(), gate.data(), up.data()}, count, dgate.data(), dup.data());
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double x = value_of(gate[i]);
      const double s = 1 / (1 + std::exp(-x));
      const double of_s = kOfExponential + 2 * kFp32Rounding;
      const double expected = x * s * value_of(up[i]);
      EXPECT_NEAR(value_of(y[i]), expected, std::abs(expected) * (of_s + 2 * kFp32Rounding + 2.1 * kStoring<TypeParam>)) << x;
      const double of_up = value_of(dy[i]) * x * s;
      EXPECT_NEAR(value_of(dup[i]), of_up, std::abs(of_up) * (of_s + 2 * kFp32Rounding + 1.1 * kStoring<TypeParam>)) << x;
      const double outer = value_of(dy[i]) * value_of(up[i]) * s;
      const double of_gate = outer * (1 + x * (1 - s));
      // 1 - s loses what s is off by and one rounding; x times it, the sum and the products one each.
      const double inner = (1 + std::abs(x)) * (2 * of_s + 6 * kFp32Rounding);
      EXPECT_NEAR(value_of(dgate[i]), of_gate, std::abs(outer) * inner + std::abs(of_gate) * 1.1 * kStoring<TypeParam>) << x;
    }
  }
}

/// As unfused operations have it: bounds of one rounding more or less would not tell.
TEST(Swiglu, Bf16IsRoundedAfterSilu) {
  constexpr std::int64_t kCount = 1009;  // more than a block
  const auto gate = testing::normal_elements<Bf16>("gate", kCount, 4);
  const auto up = testing::normal_elements<Bf16>("up", kCount);
  std::vector<Bf16> y(gate.size());
  swiglu(gate.data(), up.data(), kCount, y.data());
  using E = Element<Bf16>;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float x = E::widen(gate[i]);
    const float silu = E::widen(E::round(x * (1.0F / (1.0F + exponential(-x)))));
    EXPECT_EQ(y[i].bits, E::round(silu * E::widen(up[i])).bits) << i;
  }
}

TYPED_TEST(SwigluTest, ANumberThatIsNotFiniteStaysVisible) {
  const std::vector<TypeParam> gate(3, Element<TypeParam>::round(std::nanf("")));
  const std::vector<TypeParam> one(3, Element<TypeParam>::round(1.0F));
  std::vector<TypeParam> y(3);
  swiglu(gate.data(), one.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(value_of(y[0])));
  swiglu(one.data(), gate.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(value_of(y[2])));
}

}  // namespace
}  // namespace shardmark::kernels
