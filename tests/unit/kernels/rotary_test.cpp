// Rotation of heads against complex numbers in double.

#include "kernels/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::value_of;

template <typename T>
struct RotaryTest : ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(RotaryTest, Types);

TYPED_TEST(RotaryTest, TurnsPairsAndTheGradientTurnsThemBack) {
  constexpr std::int64_t kRows = 6;
  constexpr std::int64_t kHeads = 3;
  for (const std::int64_t width : {2, 6, 32, 70}) {
    for (const std::int64_t table_rows : {std::int64_t{2}, kRows}) {  // three texts of two positions; or a place for each
      std::vector<float> cos;
      std::vector<float> sin;
      for (std::int64_t i = 0; i < table_rows * width; ++i) {
        const float angle = 0.37F * static_cast<float>(i / width) + 0.11F * static_cast<float>(i % (width / 2));
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
      }
      const auto x = testing::normal_elements<TypeParam>("x", kRows * kHeads * width);
      std::vector<TypeParam> y(x.size());
      std::vector<TypeParam> back(x.size());
      const RotaryShape shape{kRows, kHeads, width, table_rows};
      rotate(x.data(), {cos.data(), sin.data()}, shape, RotaryDirection::forward, y.data());
      rotate(x.data(), {cos.data(), sin.data()}, shape, RotaryDirection::backward, back.data());
      const auto half = static_cast<std::size_t>(width / 2);
      for (std::size_t head = 0; head < static_cast<std::size_t>(kRows * kHeads); ++head) {
        const std::size_t row = head / static_cast<std::size_t>(kHeads);
        for (std::size_t i = 0; i < half; ++i) {
          const std::size_t at = head * 2 * half + i;
          const std::size_t table = row % static_cast<std::size_t>(table_rows) * 2 * half + i;
          const std::complex<double> number(value_of(x[at]), value_of(x[at + half]));
          const std::complex<double> turn(static_cast<double>(cos[table]), static_cast<double>(sin[table]));
          // Two products and a sum, each rounded once, of numbers no larger than the pair; then stored.
          const double bound = std::abs(number) * (3 * testing::kFp32Rounding + testing::kStoring<TypeParam> * 1.01);
          EXPECT_NEAR(value_of(y[at]), (number * turn).real(), bound);
          EXPECT_NEAR(value_of(y[at + half]), (number * turn).imag(), bound);
          EXPECT_NEAR(value_of(back[at]), (number * std::conj(turn)).real(), bound);
          EXPECT_NEAR(value_of(back[at + half]), (number * std::conj(turn)).imag(), bound);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardmark::kernels
