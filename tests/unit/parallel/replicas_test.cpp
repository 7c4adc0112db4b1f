// Copies of parameters that several ranks hold, and what finds one that differs: wherever a technique keeps copies, a flipped
// bit on one rank is seen; where it keeps none, nothing is claimed.

#include <gtest/gtest.h>

#include "tests/support/chain.hpp"
#include "train/replica_check.hpp"

namespace shardmark::parallel {
namespace {

using train::compare_replicas;
using train::judge_replicas;

constexpr int kRanks = 4;
constexpr int kOdd = 2;

/// Trains a step and compares; flips a bit of rank 2's parameters and compares again. `element`: which, of flip_bit.
struct Verdicts {
  train::ReplicaVerdict before;
  train::ReplicaVerdict after;
};
Verdicts flip_on_one_rank(const std::string& technique, const StrategyOptions& options, const Shape& shape,
                          std::int64_t element) {
  Verdicts found;
  testing::on_threads(kRanks, [&](int rank, comm::Communicator& all) {
    Chain chain(shape);
    const auto strategy = make_strategy(technique, options, all);
    strategy->prepare(chain.list, {});
    run_step(*strategy, chain, rank * 100);
    const auto before = compare_replicas(*strategy, all, 0);
    if (rank == kOdd) {
      strategy->flip_bit(element);
    }
    const auto after = compare_replicas(*strategy, all, 1);
    if (rank == 0) {
      found = {before, after};
    }
  });
  return found;
}

void expect_found(const Verdicts& verdicts, const std::vector<int>& odd, const std::string& what) {
  EXPECT_TRUE(verdicts.before.compared) << what;
  EXPECT_TRUE(verdicts.before.odd_ranks.empty()) << what;
  EXPECT_EQ(verdicts.after.odd_ranks, odd) << what;
}

/// Elements of one block's matrix as it rests on a rank of `shards`, padding included.
std::int64_t part_of(std::int64_t shards, const StrategyOptions& options) {
  const std::int64_t multiple = options.precision.alignment() * kRanks;
  return (kWidth * kWidth + multiple - 1) / multiple * multiple / shards;
}

TEST(Replicas, AFlippedBitIsFoundWhereParametersAreWhole) {
  for (const char* technique : {"ddp", "zero1", "zero2"}) {
    for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
      StrategyOptions options = sgd();
      options.precision.compute = compute;
      for (const std::int64_t element : {std::int64_t{0}, 3 * kWidth * kWidth - 1}) {
        expect_found(flip_on_one_rank(technique, options, {}, element), {kOdd}, technique);
      }
    }
  }
}

TEST(Replicas, NothingIsClaimedWhereEveryPartIsHeldOnce) {
  for (const char* technique : {"zero3", "fsdp"}) {
    const auto found = flip_on_one_rank(technique, sgd(), {}, 0);
    EXPECT_FALSE(found.before.compared) << technique;
    EXPECT_FALSE(found.after.compared) << technique << ": a bit flipped in a part that nobody else holds cannot be seen";
    EXPECT_TRUE(found.after.odd_ranks.empty()) << technique;
  }
}

TEST(Replicas, AFlippedBitIsFoundInTensorsThatPersist) {
  for (const char* technique : {"zero3", "fsdp"}) {
    for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
      StrategyOptions options = sgd();
      options.precision.compute = compute;
      options.persistence_threshold = 6;  // the 5 elements of block 2's extra tensor stay whole; all matrices are sharded
      options.allow_unused = true;
      const std::int64_t gathered = 3 * part_of(kRanks, options);
      expect_found(flip_on_one_rank(technique, options, {.extra = true}, gathered), {kOdd}, technique);
      EXPECT_TRUE(flip_on_one_rank(technique, options, {.extra = true}, gathered - 1).after.odd_ranks.empty())
          << "the part before it is held once";
    }
  }
}

TEST(Replicas, AFlippedBitIsFoundInFrozenTensorsThatPersist) {
  for (const auto frozen : {base::DType::fp32, base::DType::bf16}) {
    StrategyOptions options = sgd();
    options.precision.frozen = frozen;
    options.persistence_threshold = kWidth * kWidth + 1;  // everything stays whole; the frozen group lies last
    expect_found(flip_on_one_rank("zero3", options, {.frozen = {1}}, 3 * kWidth * kWidth - 1), {kOdd}, "zero3");
  }
}

TEST(Replicas, AFlippedBitIsFoundInHybridGroups) {
  StrategyOptions options = sgd();
  options.shard_group = 2;
  // Two ranks hold each part: neither is known to be right.
  expect_found(flip_on_one_rank("fsdp", options, {}, 0), {0, kOdd}, "groups of 2");
  options.shard_group = 1;
  expect_found(flip_on_one_rank("fsdp", options, {}, 0), {kOdd}, "groups of 1");
  options.shard_group = 2;
  options.persistence_threshold = 6;
  options.allow_unused = true;
  expect_found(flip_on_one_rank("fsdp", options, {.extra = true}, 3 * part_of(2, options)), {kOdd},
               "all ranks hold what persists");
}

TEST(Replicas, OneRankHasNone) {
  testing::on_threads(1, [](int /*rank*/, comm::Communicator& all) {
    for (const char* technique : {"single", "zero3"}) {
      Chain chain({});
      const auto strategy = make_strategy(technique, sgd(), all);
      strategy->prepare(chain.list, {});
      EXPECT_TRUE(strategy->replicas().empty()) << technique;
    }
  });
}

TEST(ReplicaVerdict, TheMajorityIsRightAndWithoutOneAllAreNamed) {
  const auto odd = [](const std::vector<Replica>& by_rank, std::size_t num_ranks) {
    return judge_replicas(by_rank, num_ranks).odd_ranks;
  };
  EXPECT_EQ(odd({{7, 0}, {7, 0}, {8, 0}}, 3), std::vector<int>{2});
  EXPECT_EQ(odd({{8, 0}, {7, 0}}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(odd({{8, 0}, {8, 0}, {7, 0}, {7, 0}, {1, 1}}, 5), (std::vector<int>{0, 1, 2, 3}))
      << "the fifth is alone of its key";
  EXPECT_EQ(odd({{7, 0}, {1, 0}, {7, 0}, {2, 0}, {7, 0}, {1, 0}}, 3), std::vector<int>{1}) << "the second kind of copy";
  EXPECT_FALSE(judge_replicas({}, 3).compared);
}

}  // namespace
}  // namespace shardmark::parallel
