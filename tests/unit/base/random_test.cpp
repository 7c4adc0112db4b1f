// Random numbers as pure functions of seed, name and place.

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace shardmark::base {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of Philox4x32-10 from Random123 (Salmon et al., SC 2011), file kat_vectors: counter, key, result.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint64_t kOnes = 0xffffffffffffffffULL;
  EXPECT_EQ(philox(kOnes, kOnes, kOnes), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Digits of pi; the first 32-bit word is the low half.
  EXPECT_EQ(philox(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox(0, 0, 0)[0] == 0x6627e8d5U);
  static_assert(RandomStream(1, "x").uniform(0) < 1.0F);
}

// FNV-1a, 64 bits: offset basis for "", and published values of the reference implementation's test suite.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(hash_text("bar", hash_text("foo")), hash_text("foobar")) << "may be continued";
  EXPECT_NE(hash_text("\xff"), hash_text("\x7f")) << "bytes above 127 are unsigned";
}

TEST(Hash, MixingDependsOnOrder) {
  EXPECT_NE(hash_mix(hash_mix(0, 1), 2), hash_mix(hash_mix(0, 2), 1));
  EXPECT_NE(hash_mix(1, 2), hash_mix(2, 1));
}

TEST(RandomStream, ElementsAreWordsOfBlocks) {
  const RandomStream stream(7, "layer.weight", 3);
  for (std::uint64_t element : {0ULL, 1ULL, 2ULL, 3ULL, 4ULL, 4001ULL, (1ULL << 40) + 2}) {
    EXPECT_EQ(stream.bits(element), philox(stream.key(), element / 4, 3)[element % 4]);
  }
}

TEST(RandomStream, SeedNameAndSaltMatter) {
  const auto head = [](const RandomStream& stream) {
    return Words{stream.bits(0), stream.bits(1), stream.bits(2), stream.bits(3)};
  };
  const std::set<Words> heads{head({1, "a"}), head({2, "a"}), head({1, "b"}), head({1, "a", 1}), head({1, "a", 1ULL << 32})};
  EXPECT_EQ(heads.size(), 5U);
  EXPECT_EQ(head({1, "a"}), head({1, "a"}));
}

TEST(RandomStream, UniformHas24Bits) {
  const RandomStream stream(1, "x");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const float value = stream.uniform(i);
    EXPECT_EQ(value * 0x1.0p24F, static_cast<float>(stream.bits(i) >> 8U)) << "exact in fp32";
    EXPECT_LT(value, 1.0F);
    EXPECT_GE(value, 0.0F);
  }
}

TEST(RandomStream, UniformCoversItsRange) {
  // Of n independent uniforms each tenth holds n/10 in the mean with deviation sqrt(0.09 n) = 95; 6 deviations leave a
  // chance of 2e-8 for the ten together. The mean of n has deviation 1/sqrt(12 n).
  constexpr int kNumbers = 100000;
  std::array<int, 10> tenths{};
  double sum = 0;
  const RandomStream stream(11, "uniform");
  for (int i = 0; i < kNumbers; ++i) {
    const float value = stream.uniform(static_cast<std::uint64_t>(i));
    sum += static_cast<double>(value);
    ++tenths.at(static_cast<std::size_t>(value * 10.0F));
  }
  for (const int count : tenths) {
    EXPECT_NEAR(count, kNumbers / 10, 6 * std::sqrt(0.09 * kNumbers));
  }
  EXPECT_NEAR(sum / kNumbers, 0.5, 6 / std::sqrt(12.0 * kNumbers));
}

TEST(RandomStream, NormalHasItsMoments) {
  // Deviations of the sample moments of n standard normals: mean 1/sqrt(n), second moment sqrt(2/n), fourth sqrt(96/n),
  // product of neighbours 1/sqrt(n). Six of each.
  constexpr int kNumbers = 100000;
  const double n = kNumbers;
  const RandomStream stream(5, "normal");
  double mean = 0;
  double second = 0;
  double fourth = 0;
  double neighbours = 0;
  double last = 0;
  for (int i = 0; i < kNumbers; ++i) {
    const double x = static_cast<double>(stream.normal(static_cast<std::uint64_t>(i)));
    ASSERT_TRUE(std::isfinite(x));
    mean += x / n;
    second += x * x / n;
    fourth += x * x * x * x / n;
    neighbours += x * last / n;
    last = x;
  }
  EXPECT_NEAR(mean, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(second, 1, 6 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth, 3, 6 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours, 0, 6 / std::sqrt(n));
}

TEST(RandomStream, NormalIsBoxMullerOfItsPair) {
  const RandomStream stream(5, "normal");
  for (std::uint64_t pair = 0; pair < 100; ++pair) {
    // Of one pair the squares add up to the squared radius: -2 ln u. Rounding both to fp32 costs 2^-24 of each, so 2^-22 of
    // the sum of squares is enough.
    const double a = static_cast<double>(stream.normal(2 * pair));
    const double b = static_cast<double>(stream.normal(2 * pair + 1));
    const double squared = -2 * std::log((static_cast<double>(stream.bits(2 * pair)) + 1) * 0x1.0p-32);
    EXPECT_NEAR(a * a + b * b, squared, 0x1.0p-22 * squared);
  }
}

TEST(RandomPermutation, IsOneForEverySize) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4097}) {
    const RandomPermutation permutation(3, 4, size);
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int64_t position = 0; position < size; ++position) {
      const auto index = permutation(position);
      ASSERT_TRUE(index >= 0 && index < size) << size;
      ASSERT_FALSE(seen[static_cast<std::size_t>(index)]) << size << " gives " << index << " twice";
      seen[static_cast<std::size_t>(index)] = true;
    }
  }
}

TEST(RandomPermutation, SeedAndSaltMatterAndRepeat) {
  const auto order = [](std::uint64_t seed, std::uint64_t salt) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 100; ++i) {
      indices.push_back(RandomPermutation(seed, salt, 100)(i));
    }
    return indices;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(2, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
}

TEST(RandomPermutation, PlacesAreMixed) {
  // The mean of |index - position| of a random permutation of n is n/3 with deviation below n/(3 sqrt(n)); six of them.
  constexpr std::int64_t kSize = 10000;
  const RandomPermutation permutation(1, 0, kSize);
  double sum = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    sum += std::abs(static_cast<double>(permutation(i) - i));
  }
  EXPECT_NEAR(sum / kSize, kSize / 3.0, 6 * kSize / 3.0 / std::sqrt(kSize));
}

}  // namespace
}  // namespace shardmark::base
