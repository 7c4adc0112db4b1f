// Element types, and bf16 by its definition: the upper half of an fp32, rounded to nearest even.

#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace shardmark::base {
namespace {

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::fp32), sizeof(float));
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::fp64), sizeof(double));
  EXPECT_EQ(size_of(DType::int64), sizeof(std::int64_t));
  EXPECT_EQ(size_of(DType::uint8), 1U);
  EXPECT_EQ(name_of(DType::fp32), "fp32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::fp64), "fp64");
  EXPECT_EQ(name_of(DType::int64), "int64");
  EXPECT_EQ(name_of(DType::uint8), "uint8");
}

TEST(Bf16, EveryValueSurvivesWideningAndRounding) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = widen_bf16(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(widen_bf16(round_bf16(wide)))) << bits;
    } else {
      EXPECT_EQ(round_bf16(wide), half);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  // 1 + k / 128 are neighbours: between 1 and 1 + 1/128 lies 1 + 1/256.
  const auto rounded = [](float value) { return widen_bf16(round_bf16(value)); };
  EXPECT_EQ(rounded(1.0F + 0x1.0p-8F), 1.0F) << "halfway goes to the even one below";
  EXPECT_EQ(rounded(1.0F + 0x1.0p-7F + 0x1.0p-8F), 1.0F + 0x1.0p-6F) << "halfway goes to the even one above";
  EXPECT_EQ(rounded(1.0F + 0x1.0p-8F + 0x1.0p-23F), 1.0F + 0x1.0p-7F) << "just above halfway";
  EXPECT_EQ(rounded(1.0F + 0x1.0p-8F - 0x1.0p-23F), 1.0F) << "just below halfway";
  EXPECT_EQ(rounded(-1.0F - 0x1.0p-8F - 0x1.0p-23F), -1.0F - 0x1.0p-7F);
}

TEST(Bf16, EndsOfTheRange) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(widen_bf16(round_bf16(kInf)), kInf);
  EXPECT_EQ(widen_bf16(round_bf16(-kInf)), -kInf);
  EXPECT_EQ(widen_bf16(round_bf16(std::numeric_limits<float>::max())), kInf) << "rounds past the largest bf16";
  EXPECT_EQ(round_bf16(-0.0F), 0x8000);
  EXPECT_EQ(round_bf16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Bf16, NanNeverBecomesInfinity) {
  // NaNs whose payload lies in the lower half alone would lose it.
  for (const std::uint32_t bits : {0x7f800001U, 0x7f80ffffU, 0xff800001U, 0x7fffffffU, 0x7fc00000U}) {
    EXPECT_TRUE(std::isnan(widen_bf16(round_bf16(std::bit_cast<float>(bits))))) << std::hex << bits;
  }
}

}  // namespace
}  // namespace shardmark::base
