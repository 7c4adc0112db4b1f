// The device's tree sum against its oracle on the host: the same bits. Skips with a reason where there is no device.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "kernels/tree_sum.hpp"
#include "tests/support/on_device.hpp"
#include "tests/support/rank_data.hpp"

namespace shardmark::kernels {
namespace {

using base::DType;
using testing::Elements;

using testing::DeviceBytes;
using TreeSumOnDevice = testing::OnDevice;

/// Reduces on both sides; `target` = -1: into memory of its own, else over that source.
void expect_equal_to_host(DType dtype, std::int64_t count, int size, TreeOperation operation, int target = -1) {
  std::vector<Elements> sources;
  std::vector<DeviceBytes> copies;
  std::vector<const void*> on_host;
  std::vector<const void*> on_device;
  for (int r = 0; r < size; ++r) {
    sources.push_back(testing::rank_values(dtype, count, r));
    copies.emplace_back(sources.back().bytes.data(), sources.back().bytes.size());
    on_device.push_back(copies.back().data());
  }
  for (const Elements& source : sources) {
    on_host.push_back(source.bytes.data());
  }
  Elements expected(dtype, count);
  Elements found(dtype, count);
  const DeviceBytes own(found.bytes.data(), found.bytes.size());
  const DeviceBytes& out = target < 0 ? own : copies[static_cast<std::size_t>(target)];
  tree_reduce(on_host.data(), size, expected.bytes.data(), count, dtype, operation);
  tree_reduce_device(on_device.data(), size, out.data(), count, dtype, operation, nullptr);
  out.copy_to(found.bytes.data());
  EXPECT_TRUE(found == expected) << base::name_of(dtype) << ", " << count << " elements of " << size << " sources";
}

TEST_F(TreeSumOnDevice, EqualsTheHostForEveryTypeAndTreeSize) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64, DType::int64, DType::uint8}) {
    // Every leaf size, whole and broken carries of leaves, the most that one launch takes.
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 64, 255, kMaxDeviceSources}) {
      expect_equal_to_host(dtype, 10'007, size, TreeOperation::sum);
    }
  }
}

TEST_F(TreeSumOnDevice, EqualsTheHostForExtremes) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64, DType::int64, DType::uint8}) {
    for (const int size : {2, 3, 8, 11}) {
      expect_equal_to_host(dtype, 1009, size, TreeOperation::max);
      expect_equal_to_host(dtype, 1009, size, TreeOperation::min);
    }
  }
}

TEST_F(TreeSumOnDevice, LongerThanOneGridAndShorterThanOneThreadBlock) {
  // 4096 blocks of 256 threads are 2^20 elements: beyond them every thread takes a second one.
  expect_equal_to_host(DType::fp32, (std::int64_t{1} << 20) + 12'345, 3, TreeOperation::sum);
  expect_equal_to_host(DType::bf16, 1, 3, TreeOperation::sum);
}

TEST_F(TreeSumOnDevice, MayOverwriteAnySource) {
  for (const int size : {2, 3, 11}) {
    for (int target = 0; target < size; ++target) {
      expect_equal_to_host(DType::fp32, 4001, size, TreeOperation::sum, target);
    }
  }
}

TEST_F(TreeSumOnDevice, WidenedEqualsTheHost) {
  for (const int size : {1, 2, 3, 8, 9, 31, kMaxDeviceSources}) {
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{10'007}}) {
      std::vector<Elements> sources;
      std::vector<DeviceBytes> copies;
      std::vector<const void*> on_host;
      std::vector<const void*> on_device;
      for (int r = 0; r < size; ++r) {
        sources.push_back(testing::rank_values(DType::bf16, count, r));
        copies.emplace_back(sources.back().bytes.data(), sources.back().bytes.size());
        on_device.push_back(copies.back().data());
      }
      for (const Elements& source : sources) {
        on_host.push_back(source.bytes.data());
      }
      std::vector<float> expected(static_cast<std::size_t>(count));
      const testing::DeviceArray<float> out(expected);
      tree_sum_widened(on_host.data(), size, expected.data(), count);
      tree_sum_widened_device(on_device.data(), size, out.data(), count, nullptr);
      EXPECT_EQ(out.values(), expected) << count << " elements of " << size << " sources";
    }
  }
}

TEST_F(TreeSumOnDevice, TooManySourcesAreRefused) {
  const std::vector<const void*> sources(static_cast<std::size_t>(kMaxDeviceSources) + 1, nullptr);
  EXPECT_THROW(tree_reduce_device(sources.data(), kMaxDeviceSources + 1, nullptr, 0, DType::fp32, TreeOperation::sum, nullptr),
               base::InvariantError);
}

}  // namespace
}  // namespace shardmark::kernels
