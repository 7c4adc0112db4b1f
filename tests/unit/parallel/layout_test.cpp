// The flat layout for 1 to 8 ranks: borders, padding, order, with sizes that divide nothing.

#include "parallel/layout.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace shardmark::parallel {
namespace {

constexpr std::int64_t kAlignment = 16;

TEST(Layout, EveryBorderIsAMultipleOfTheAlignment) {
  const std::vector<std::int64_t> sizes{7, 1, 0, 131, 16, 17, 65537, 3};
  for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
    const auto layout = make_layout({{7, 6}, {5}, {4, 3, 2, 1, 0}}, sizes, kAlignment, ranks);
    std::int64_t at = 0;
    std::int64_t used = 0;
    for (const auto& group : layout.groups) {
      EXPECT_EQ(group.begin, at);
      EXPECT_EQ(group.numel() % (kAlignment * ranks), 0);
      std::int64_t free_from = group.begin;
      for (const auto& tensor : group.tensors) {
        EXPECT_EQ(tensor.offset % kAlignment, 0);
        EXPECT_GE(tensor.offset, free_from) << "tensors overlap";
        EXPECT_EQ(tensor.numel, sizes[static_cast<std::size_t>(tensor.index)]);
        free_from = tensor.offset + tensor.numel;
        used += tensor.numel;
      }
      EXPECT_LE(free_from, group.end);
      EXPECT_LT(group.end - free_from, kAlignment * ranks) << "more padding than a border needs";
      at = group.end;
    }
    EXPECT_EQ(layout.size, at);
    EXPECT_EQ(used, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
    EXPECT_EQ(layout.padding, layout.size - used);
  }
}

TEST(Layout, FirstBucketIsSmallerAndALargeTensorStandsAlone) {
  const std::vector<std::int64_t> sizes{5, 5, 100, 5, 5, 5};
  const auto buckets = cut_buckets({0, 1, 2, 3, 4, 5}, sizes, 8, 10);
  const std::vector<std::vector<std::int64_t>> expected{{0}, {1}, {2}, {3, 4}, {5}};
  EXPECT_EQ(buckets, expected);
}

TEST(Layout, NothingToLayOut) {
  EXPECT_TRUE(cut_buckets({}, {}, 1, 1).empty());
  EXPECT_EQ(make_layout({}, {}, kAlignment, 3).size, 0);
}

}  // namespace
}  // namespace shardmark::parallel
