// The fused norm and its gradients against the formulas in double. Bounds count roundings: a sum of n terms in 16 lanes takes
// n / 16 + 16 additions.

#include "kernels/rms_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::kFp32Rounding;
using testing::kStoring;
using testing::value_of;

constexpr double kEpsilon = 1e-5;

template <typename T>
struct RmsNormTest : ::testing::Test {
  /// Everything of `rows` x `width` rows, computed and in double.
  void compare(std::int64_t rows, std::int64_t width) {
    const auto x = testing::normal_elements<T>("x", rows * width, 3);
    const auto weight = testing::normal_elements<T>("weight", width);
    const auto dy = testing::normal_elements<T>("dy", rows * width);
    std::vector<T> y(x.size());
    std::vector<T> dx(x.size());
    std::vector<T> dweight(weight.size());
    std::vector<float> inverse(static_cast<std::size_t>(rows));
    rms_norm(x.data(), weight.data(), kEpsilon, {rows, width}, y.data(), inverse.data());
    rms_norm_backward<T>({dy.data(), x.data(), weight.data(), inverse.data()}, {rows, width}, dx.data(), dweight.data());

    const double additions = static_cast<double>(width) / 16 + 16;
    const double of_inverse = (additions + 8) * kFp32Rounding;  // not halved by the root, to be short
    std::vector<double> sum(weight.size());
    std::vector<double> sizes(weight.size());
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      const std::size_t at = row * static_cast<std::size_t>(width);
      double squares = 0;
      double products = 0;
      double sizes_of_products = 0;
      for (std::size_t i = 0; i < weight.size(); ++i) {
        squares += value_of(x[at + i]) * value_of(x[at + i]);
        const double product = value_of(dy[at + i]) * value_of(weight[i]) * value_of(x[at + i]);
        products += product;
        sizes_of_products += std::abs(product);
      }
      const auto count = static_cast<double>(width);
      const double r = 1 / std::sqrt(squares / count + kEpsilon);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const double normalised = value_of(x[at + i]) * r;
        const double expected = normalised * value_of(weight[i]);
        ASSERT_NEAR(value_of(y[at + i]), expected, std::abs(expected) * (of_inverse + 3 * kFp32Rounding + 2.1 * kStoring<T>))
            << row << ' ' << i;
        const double g = value_of(dy[at + i]) * value_of(weight[i]);
        const double gradient = r * (g - normalised * r * products / count);
        const double parts = r * (std::abs(g) + std::abs(normalised) * r * sizes_of_products / count);
        ASSERT_NEAR(value_of(dx[at + i]), gradient,
                    parts * (3 * of_inverse + (additions + 8) * kFp32Rounding) + std::abs(gradient) * 1.1 * kStoring<T>)
            << row << ' ' << i;
        sum[i] += value_of(dy[at + i]) * normalised;
        sizes[i] += std::abs(value_of(dy[at + i]) * normalised);
      }
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double of_sum = (16 + static_cast<double>(rows) / 16 + 4) * kFp32Rounding;
      ASSERT_NEAR(value_of(dweight[i]), sum[i],
                  sizes[i] * (of_inverse + of_sum + 1.1 * kStoring<T>)+std::abs(sum[i]) * 1.1 * kStoring<T>)
          << i;
    }
  }
};

using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(RmsNormTest, Types);

TYPED_TEST(RmsNormTest, AgreesWithTheFormulasAtAnyWidthAndNumberOfRows) {
  for (const std::int64_t width : {1, 7, 16, 17, 64, 320, 1031}) {
    for (const std::int64_t rows : {1, 15, 16, 33}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << width);
      this->compare(rows, width);
    }
  }
}

TYPED_TEST(RmsNormTest, LeavesOutWhatNobodyWants) {
  const auto x = testing::normal_elements<TypeParam>("x", 40);
  const auto weight = testing::normal_elements<TypeParam>("weight", 20);
  const std::vector<float> inverse{1.0F, 2.0F};
  std::vector<TypeParam> both(40);
  std::vector<TypeParam> alone(40);
  std::vector<TypeParam> of_weight(20);
  std::vector<TypeParam> of_weight_alone(20);
  const RmsNormInputs<TypeParam> inputs{x.data(), x.data(), weight.data(), inverse.data()};
  rms_norm_backward(inputs, {2, 20}, both.data(), of_weight.data());
  rms_norm_backward<TypeParam>(inputs, {2, 20}, alone.data(), nullptr);
  rms_norm_backward<TypeParam>(inputs, {2, 20}, nullptr, of_weight_alone.data());
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(value_of(alone[i]), value_of(both[i]));
    EXPECT_EQ(value_of(of_weight_alone[i % 20]), value_of(of_weight[i % 20]));
  }
}

/// As unfused operations have it, so that both train alike: bounds of one rounding more or less would not tell.
TEST(RmsNorm, Bf16IsRoundedBeforeTheWeightToo) {
  constexpr std::int64_t kWidth = 100;
  const auto x = testing::normal_elements<Bf16>("x", kWidth, 3);
  const auto weight = testing::normal_elements<Bf16>("weight", kWidth);
  const auto dy = testing::normal_elements<Bf16>("dy", kWidth);
  std::vector<Bf16> y(x.size());
  std::vector<Bf16> dweight(x.size());
  float inverse = 0;
  rms_norm(x.data(), weight.data(), kEpsilon, {1, kWidth}, y.data(), &inverse);
  rms_norm_backward<Bf16>({dy.data(), x.data(), weight.data(), &inverse}, {1, kWidth}, nullptr, dweight.data());
  using E = Element<Bf16>;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float normalised = E::widen(E::round(E::widen(x[i]) * inverse));
    EXPECT_EQ(y[i].bits, E::round(normalised * E::widen(weight[i])).bits) << i;
    EXPECT_EQ(dweight[i].bits, E::round(E::widen(dy[i]) * normalised).bits) << i;
  }
}

TEST(RmsNorm, ANumberThatIsNotFiniteStaysVisible) {
  const std::vector<float> x{1.0F, std::nanf(""), 2.0F};
  const std::vector<float> weight(3, 1.0F);
  std::vector<float> y(3);
  float inverse = 0;
  rms_norm(x.data(), weight.data(), kEpsilon, {1, 3}, y.data(), &inverse);
  for (const float value : y) {
    EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace shardmark::kernels
