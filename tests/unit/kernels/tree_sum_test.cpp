// The tree's shape, its roundings, and that neither cut nor alias changes a bit.

#include "kernels/tree_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/tree_sum_core.hpp"
#include "tests/support/rank_data.hpp"

namespace shardmark::kernels {
namespace {

using base::DType;
using testing::Elements;

std::vector<Elements> sources_of(DType dtype, std::int64_t count, int size) {
  std::vector<Elements> sources;
  for (int r = 0; r < size; ++r) {
    sources.push_back(testing::rank_values(dtype, count, r));
  }
  return sources;
}

std::vector<const void*> pointers_of(const std::vector<Elements>& sources, std::int64_t begin) {
  std::vector<const void*> pointers;
  for (const Elements& source : sources) {
    pointers.push_back(source.bytes.data() + static_cast<std::size_t>(begin) * base::size_of(source.dtype));
  }
  return pointers;
}

TEST(TreeSum, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(tree_split(2), 1);
  EXPECT_EQ(tree_split(3), 2);
  EXPECT_EQ(tree_split(4), 2);
  EXPECT_EQ(tree_split(5), 4);
  EXPECT_EQ(tree_split(8), 4);
  EXPECT_EQ(tree_split(9), 8);
}

TEST(TreeSum, EqualsTheSerialTreeForAnyNumberOfSources) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64, DType::int64}) {
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31}) {
      constexpr std::int64_t kCount = 2500;  // more than two blocks
      const auto sources = sources_of(dtype, kCount, size);
      Elements sum(dtype, kCount);
      tree_reduce(pointers_of(sources, 0).data(), size, sum.bytes.data(), kCount, dtype, TreeOperation::sum);
      EXPECT_EQ(sum, testing::expected_sum(dtype, kCount, size)) << base::name_of(dtype) << " over " << size;
    }
  }
}

/// The device's way over more sources than a leaf, run here.
template <typename Op, typename T>
Elements large_tree(DType dtype, const std::vector<const void*>& sources, std::int64_t count) {
  const auto* typed = reinterpret_cast<const T* const*>(sources.data());
  Elements out(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = Element<T>::round(large_tree_element<Op, T>(typed, static_cast<int>(sources.size()), i));
    std::memcpy(out.part(i, 1).data, &value, sizeof value);
  }
  return out;
}

template <typename T>
void expect_large_tree_equal(DType dtype) {
  constexpr std::int64_t kCount = 67;
  // Whole and broken carries of leaves, up to the most that the stack holds.
  for (int size = 1; size <= 256; size += size < 70 ? 1 : 31) {
    const auto sources = sources_of(dtype, kCount, size);
    const auto pointers = pointers_of(sources, 0);
    Elements expected(dtype, kCount);
    tree_reduce(pointers.data(), size, expected.bytes.data(), kCount, dtype, TreeOperation::sum);
    EXPECT_EQ((large_tree<Add, T>(dtype, pointers, kCount)), expected) << base::name_of(dtype) << " over " << size;
    tree_reduce(pointers.data(), size, expected.bytes.data(), kCount, dtype, TreeOperation::max);
    EXPECT_EQ((large_tree<Max, T>(dtype, pointers, kCount)), expected) << base::name_of(dtype) << " over " << size;
  }
}

TEST(TreeSum, TheDevicesWayOverManySourcesIsTheSameTree) {
  expect_large_tree_equal<float>(DType::fp32);
  expect_large_tree_equal<Bf16>(DType::bf16);
  expect_large_tree_equal<double>(DType::fp64);
  expect_large_tree_equal<std::int64_t>(DType::int64);
  expect_large_tree_equal<std::uint8_t>(DType::uint8);
}

TEST(TreeSum, WidenedIsTheSumBeforeItIsRounded) {
  for (const int size : {1, 3, 8, 9, 31, 255}) {
    constexpr std::int64_t kCount = 1500;
    const auto sources = sources_of(DType::bf16, kCount, size);
    const auto pointers = pointers_of(sources, 0);
    std::vector<float> sum(kCount);
    tree_sum_widened(pointers.data(), size, sum.data(), kCount);
    const auto* typed = reinterpret_cast<const Bf16* const*>(pointers.data());
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(sum[static_cast<std::size_t>(i)], (large_tree_element<Add, Bf16>(typed, size, i))) << i << " of " << size;
    }
  }
}

TEST(TreeSum, MayOverwriteAnySource) {
  for (const int size : {2, 3, 8, 11}) {
    const Elements expected = testing::expected_sum(DType::fp32, 1500, size);
    for (int target = 0; target < size; ++target) {
      auto sources = sources_of(DType::fp32, 1500, size);
      void* out = sources[static_cast<std::size_t>(target)].bytes.data();
      tree_reduce(pointers_of(sources, 0).data(), size, out, 1500, DType::fp32, TreeOperation::sum);
      EXPECT_EQ(sources[static_cast<std::size_t>(target)], expected) << target << " of " << size;
    }
  }
}

TEST(TreeSum, CutsDoNotMatter) {
  constexpr std::int64_t kCount = 1009;
  const auto sources = sources_of(DType::bf16, kCount, 5);
  Elements sum(DType::bf16, kCount);
  for (std::int64_t begin = 0; begin < kCount; begin += 7) {
    const std::int64_t count = std::min<std::int64_t>(7, kCount - begin);
    tree_reduce(pointers_of(sources, begin).data(), 5, sum.part(begin, count).data, count, DType::bf16, TreeOperation::sum);
  }
  EXPECT_EQ(sum, testing::expected_sum(DType::bf16, kCount, 5));
}

TEST(TreeSum, RoundsBf16AsBaseDoes) {
  for (std::uint64_t i = 0; i < (1ULL << 32U); i += 65537 / 3) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    EXPECT_EQ(Element<Bf16>::round(value).bits, base::round_bf16(value)) << i;
  }
  for (const float value : {0.0F, -0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(Element<Bf16>::round(value).bits, base::round_bf16(value));
  }
}

TEST(TreeSum, Bf16IsRoundedOnceAtTheEnd) {
  // 1 + 2^-9 rounds back to 1 in bf16, but two of them together reach the next value above 1, 1 + 2^-7, by half: kept in
  // fp32, 1 + 4 x 2^-9 = 1 + 2^-7 exactly.
  Elements one(DType::bf16, 1);
  Elements tiny(DType::bf16, 1);
  one.set(0, 1.0);
  tiny.set(0, std::ldexp(1.0, -9));
  const std::vector<const void*> sources{one.bytes.data(), tiny.bytes.data(), tiny.bytes.data(), tiny.bytes.data(),
                                         tiny.bytes.data()};
  Elements sum(DType::bf16, 1);
  tree_reduce(sources.data(), 5, sum.bytes.data(), 1, DType::bf16, TreeOperation::sum);
  EXPECT_EQ(sum.get(0), 1.0 + std::ldexp(1.0, -7));
}

TEST(TreeSum, WrapsAndExtremes) {
  Elements a(DType::uint8, 1);
  Elements b(DType::uint8, 1);
  a.set(0, 200);
  b.set(0, 100);
  const std::vector<const void*> sources{a.bytes.data(), b.bytes.data()};
  Elements out(DType::uint8, 1);
  tree_reduce(sources.data(), 2, out.bytes.data(), 1, DType::uint8, TreeOperation::sum);
  EXPECT_EQ(out.get(0), 44);
  tree_reduce(sources.data(), 2, out.bytes.data(), 1, DType::uint8, TreeOperation::max);
  EXPECT_EQ(out.get(0), 200);
  tree_reduce(sources.data(), 2, out.bytes.data(), 1, DType::uint8, TreeOperation::min);
  EXPECT_EQ(out.get(0), 100);
}

}  // namespace
}  // namespace shardmark::kernels
