// Moves between buffers: every pair of types against a plain loop and against the host's checked copies.

#include "kernels/move.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "optim/vector_ops.hpp"
#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::kKernelSizes;
using testing::kTypeOf;
using testing::normal_elements;

template <typename Pair>
class MoveScaled : public ::testing::Test {};
using Pairs =
    ::testing::Types<std::tuple<float, float>, std::tuple<float, Bf16>, std::tuple<Bf16, float>, std::tuple<Bf16, Bf16>>;
TYPED_TEST_SUITE(MoveScaled, Pairs);

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TYPED_TEST(MoveScaled, CopiesAsTheCheckedCopy) {
  using Into = std::tuple_element_t<0, TypeParam>;
  using From = std::tuple_element_t<1, TypeParam>;
  for (const std::int64_t size : kKernelSizes) {
    const auto from = normal_elements<From>("from", size, 3);
    std::vector<Into> into(from.size());
    std::vector<Into> expected(from.size());
    std::int32_t flag = 0;
    move_scaled({.into = into.data(),
                 .into_type = kTypeOf<Into>,
                 .from = from.data(),
                 .from_type = kTypeOf<From>,
                 .count = size,
                 .not_finite = &flag});
    EXPECT_TRUE(optim::copy_checked(std::span<Into>(expected), std::span<const From>(from)));
    EXPECT_TRUE(same_bits(into, expected)) << size;
    EXPECT_EQ(flag, 0);
  }
}

TYPED_TEST(MoveScaled, ScalesInFp32AndRoundsOnce) {
  using Into = std::tuple_element_t<0, TypeParam>;
  using From = std::tuple_element_t<1, TypeParam>;
  const auto from = normal_elements<From>("from", 1003);
  for (const float scale : {0.25F, 0.3F, -1.7F}) {
    std::vector<Into> into(from.size());
    move_scaled({.into = into.data(),
                 .into_type = kTypeOf<Into>,
                 .from = from.data(),
                 .from_type = kTypeOf<From>,
                 .count = 1003,
                 .scale = scale});
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Into expected = Element<Into>::round(Element<From>::widen(from[i]) * scale);
      EXPECT_EQ(Element<Into>::widen(into[i]), Element<Into>::widen(expected)) << i;
    }
  }
}

TYPED_TEST(MoveScaled, SaysWhatIsNotFiniteAndMovesIt) {
  using Into = std::tuple_element_t<0, TypeParam>;
  using From = std::tuple_element_t<1, TypeParam>;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {0U, 50U, 100U}) {
      auto from = normal_elements<From>("from", 101);
      from[at] = Element<From>::round(bad);
      std::vector<Into> into(from.size());
      std::int32_t flag = 0;
      const Move move{
          .into = into.data(), .into_type = kTypeOf<Into>, .from = from.data(), .from_type = kTypeOf<From>, .count = 101};
      move_scaled(move);  // nobody asks
      Move asked = move;
      asked.not_finite = &flag;
      move_scaled(asked);
      EXPECT_EQ(flag, 1);
      EXPECT_FALSE(std::isfinite(Element<Into>::widen(into[at])));
      asked.count = static_cast<std::int64_t>(at);
      asked.not_finite = &flag;
      move_scaled(asked);
      EXPECT_EQ(flag, 1) << "a flag of an earlier move stays";
    }
  }
}

template <typename From>
void expect_added(float scale) {
  for (const std::int64_t size : kKernelSizes) {
    const auto from = normal_elements<From>("from", size);
    auto into = normal_elements<float>("into", size, 100);
    auto expected = into;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const float part = Element<From>::widen(from[i]) * scale;
      expected[i] = expected[i] + part;
    }
    if (scale == 1.0F) {
      auto oracle = into;
      EXPECT_TRUE(optim::add_checked(std::span<float>(oracle), std::span<const From>(from)));
      EXPECT_TRUE(same_bits(oracle, expected));
    }
    move_scaled(
        {.into = into.data(), .from = from.data(), .from_type = kTypeOf<From>, .count = size, .scale = scale, .add = true});
    EXPECT_TRUE(same_bits(into, expected)) << size;
  }
}

TEST(MoveScaledSums, AddToFp32InTwoRoundings) {
  expect_added<float>(1);
  expect_added<Bf16>(1);
  expect_added<float>(0.3F);
  expect_added<Bf16>(0.3F);
}

TEST(MoveScaledSums, KeepTheBitsOfANaN) {
  // A signalling NaN: any arithmetic would change it.
  const auto odd = std::bit_cast<float>(0x7f812345U);
  float into = 0;
  move_scaled({.into = &into, .from = &odd, .count = 1});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(into), 0x7f812345U);
  const Bf16 narrow{0x7f81U};
  Bf16 copy{0};
  move_scaled({.into = &copy, .into_type = base::DType::bf16, .from = &narrow, .from_type = base::DType::bf16, .count = 1});
  EXPECT_EQ(copy.bits, 0x7f81U);
}

TEST(MoveScaledSums, OtherTargetsAreRefused) {
  EXPECT_THROW(move_scaled({.into_type = base::DType::bf16, .add = true}), base::InvariantError);
  EXPECT_THROW(move_scaled({.into_type = base::DType::int64}), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::kernels
