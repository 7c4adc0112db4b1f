// Which sizes are refused before memory is allocated.

#include "app/bench/memory_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace shardmark::app::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

RankMemory rank_of(std::int64_t node, std::int64_t host_free, const char* device = "", std::int64_t device_free = -1) {
  RankMemory rank;
  rank.node = node;
  rank.host_free_bytes = host_free;
  rank.device_free_bytes = device_free;
  std::string(device).copy(rank.device, sizeof rank.device - 1);
  return rank;
}

std::vector<std::string> problems_of(const std::vector<RankMemory>& ranks, const std::vector<std::string>& hosts,
                                     std::int64_t bytes) {
  try {
    require_memory(ranks, hosts, bytes);
  } catch (const base::ConfigError& error) {
    return error.problems();
  }
  return {};
}

TEST(MemoryCheck, BuffersOfAllRanksOfANodeCount) {
  // Two ranks of two buffers each: nine tenths of 400 MiB hold four of 90 MiB, one rank alone could have 180 MiB.
  const std::vector<RankMemory> ranks{rank_of(0, 401 * kMiB), rank_of(0, 400 * kMiB)};
  EXPECT_THAT(problems_of(ranks, {"a", "a"}, 90 * kMiB), ElementsAre());
  EXPECT_THAT(problems_of(ranks, {"a", "a"}, 90 * kMiB + 1),
              ElementsAre(AllOf(HasSubstr("memory of host a"), HasSubstr("4 buffers of 2 ranks"),
                                HasSubstr("400.00 MiB are free"), HasSubstr("give --max 90M at most"))));
}

TEST(MemoryCheck, EveryNodeAndDeviceThatIsTooSmallIsNamed) {
  const std::vector<RankMemory> ranks{rank_of(0, 1000 * kMiB, "GPU-1", 100 * kMiB),
                                      rank_of(0, 1000 * kMiB, "GPU-1", 100 * kMiB),
                                      rank_of(1, 10 * kMiB, "GPU-1", 1000 * kMiB)};
  EXPECT_THAT(problems_of(ranks, {"a", "a", "b"}, 30 * kMiB),
              ElementsAre(AllOf(HasSubstr("device GPU-1 of host a"), HasSubstr("give --max 22M")),
                          AllOf(HasSubstr("memory of host b"), HasSubstr("give --max 4M"))));
}

TEST(MemoryCheck, WhatNobodyKnowsRefusesNothing) {
  EXPECT_THAT(problems_of({rank_of(0, -1, "GPU-1", -1)}, {"a"}, std::int64_t{1} << 50), ElementsAre());
}

}  // namespace
}  // namespace shardmark::app::bench
