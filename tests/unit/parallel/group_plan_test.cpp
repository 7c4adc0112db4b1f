// Which parameters lie in which group, for every technique and 1 to 8 ranks: sizes that divide nothing, that are smaller than
// the number of ranks, that are empty; frozen and trainable mixed; persistent tensors.

#include "parallel/group_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {
namespace {

constexpr std::int64_t kAlignment = 16;
const StrategyOptions kDefaults;
using Facts = std::vector<ParameterFacts>;

struct Technique {
  const char* name;
  MakePolicy make;
};
constexpr std::array<Technique, 5> kTechniques{
    {{"ddp", ddp_policy}, {"zero1", zero1_policy}, {"zero2", zero2_policy}, {"zero3", zero3_policy}, {"fsdp", fsdp_policy}}};

/// Units 0 to 6 with primes, sizes below any rank count, empty tensors, an empty unit (4) and a unit of empty tensors (5).
Facts awkward_model(std::uint64_t seed) {
  const std::vector<std::int64_t> sizes{0, 1, 2, 3, 7, 13, 16, 17, 31, 127, 131, 509, 8191, 65537};
  const base::RandomStream stream(seed, "model");
  Facts facts;
  std::uint64_t at = 0;
  for (const std::int64_t unit : {0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 5, 5, 6, 6}) {
    const std::int64_t numel = unit == 5 ? 0 : sizes[stream.bits(at) % sizes.size()];
    facts.push_back({numel, unit, stream.bits(at + 1) % 3 != 0});
    at += 2;
  }
  return facts;
}

/// What must hold of any plan.
void check_plan(const std::vector<GroupPlan>& groups, const Facts& facts, const Policy& policy) {
  std::vector<int> found(facts.size(), 0);
  bool frozen_seen = false;
  for (const auto& group : groups) {
    EXPECT_EQ(group.layout.begin, 0);
    EXPECT_EQ(group.layout.numel() % (kAlignment * policy.shards), 0);
    frozen_seen = frozen_seen || !group.trainable;
    EXPECT_FALSE(frozen_seen && group.trainable) << "frozen groups come last";
    std::int64_t free_from = 0;
    std::int64_t used = 0;
    for (const auto& tensor : group.layout.tensors) {
      const auto& fact = facts[static_cast<std::size_t>(tensor.index)];
      ++found[static_cast<std::size_t>(tensor.index)];
      EXPECT_EQ(tensor.numel, fact.numel);
      EXPECT_EQ(fact.trainable, group.trainable);
      EXPECT_EQ(tensor.offset % kAlignment, 0);
      EXPECT_GE(tensor.offset, free_from) << "tensors overlap";
      free_from = tensor.offset + tensor.numel;
      used += tensor.numel;
      EXPECT_EQ(group.gathered, policy.shard_parameters && fact.numel >= policy.persistence_threshold);
      if (group.gathered) {
        EXPECT_EQ(group.unit, fact.unit);
      }
    }
    EXPECT_LE(free_from, group.layout.numel());
    EXPECT_FALSE(group.layout.tensors.empty()) << "a group of nothing";
    EXPECT_EQ(padding_of(group), group.layout.numel() - used);
    if (!group.gathered) {
      EXPECT_EQ(group.unit, -1);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(found, [](int times) { return times == 1; })) << "every parameter in one group";
}

/// The shards of all groups put together are every element of every parameter, each once, in its place.
void check_shards(const std::vector<GroupPlan>& groups, const Facts& facts, std::int64_t shards) {
  std::vector<std::vector<int>> times;
  for (const auto& fact : facts) {
    times.emplace_back(static_cast<std::size_t>(fact.numel), 0);
  }
  for (const auto& group : groups) {
    const std::int64_t part = group.layout.numel() / shards;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      std::int64_t last_end = 0;
      for (const auto& piece : parts_within(group.layout, shard * part, (shard + 1) * part)) {
        EXPECT_GT(piece.numel, 0);
        EXPECT_GE(piece.offset, last_end);
        last_end = piece.offset + piece.numel;
        EXPECT_LE(last_end, part);
        const auto tensor = std::ranges::find(group.layout.tensors, piece.index, &LayoutTensor::index);
        ASSERT_NE(tensor, group.layout.tensors.end());
        EXPECT_EQ(tensor->offset + piece.first, shard * part + piece.offset) << "the piece lies where its tensor does";
        for (std::int64_t i = 0; i < piece.numel; ++i) {
          ++times[static_cast<std::size_t>(piece.index)][static_cast<std::size_t>(piece.first + i)];
        }
      }
    }
  }
  for (const auto& tensor : times) {
    EXPECT_TRUE(std::ranges::all_of(tensor, [](int count) { return count == 1; }));
  }
}

TEST(GroupPlan, EveryElementLiesOnOneShardInEveryTechnique) {
  for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (const auto& technique : kTechniques) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        for (const std::int64_t threshold : {0, 1, 17, 1000}) {
          SCOPED_TRACE(std::string(technique.name) + " at " + std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
          StrategyOptions options;
          options.persistence_threshold = threshold;
          options.bucket_bytes = seed % 2 == 0 ? 400 : 4 << 20;
          const Policy policy = technique.make(options, ranks);
          const Facts facts = awkward_model(seed);
          const auto groups = plan_groups(facts, policy, kAlignment);
          check_plan(groups, facts, policy);
          check_shards(groups, facts, policy.shards);
        }
      }
    }
  }
}

TEST(GroupPlan, HybridCutsEveryGroupAmongTheRanksThatShare) {
  for (const std::int64_t share : {1, 2, 3, 6}) {
    StrategyOptions options;
    options.shard_group = share;
    const Policy policy = fsdp_policy(options, 6);
    const Facts facts = awkward_model(3);
    const auto groups = plan_groups(facts, policy, kAlignment);
    check_plan(groups, facts, policy);
    check_shards(groups, facts, share);
  }
}

TEST(GroupPlan, UnitsAreReducedAsBackwardMeetsThem) {
  const Facts facts{{100, 0, true}, {5, 1, true}, {7, 1, false}, {9, 2, true}, {11, 3, false}, {13, 2, true}};
  const auto groups = plan_groups(facts, zero3_policy(kDefaults, 2), kAlignment);
  std::vector<std::int64_t> units;
  std::vector<bool> trainable;
  std::vector<std::vector<std::int64_t>> members;
  for (const auto& group : groups) {
    units.push_back(group.unit);
    trainable.push_back(group.trainable);
    auto& indices = members.emplace_back();
    for (const auto& tensor : group.layout.tensors) {
      indices.push_back(tensor.index);
    }
  }
  EXPECT_EQ(units, (std::vector<std::int64_t>{2, 1, 0, 3, 1}));
  EXPECT_EQ(trainable, (std::vector<bool>{true, true, true, false, false}));
  EXPECT_EQ(members, (std::vector<std::vector<std::int64_t>>{{3, 5}, {1}, {0}, {4}, {2}})) << "within a unit as declared";
}

TEST(GroupPlan, TensorsBelowTheThresholdPersist) {
  StrategyOptions options;
  options.persistence_threshold = 10;
  const Policy policy = zero3_policy(options, 2);
  const Facts facts{{9, 0, true}, {10, 0, true}, {11, 1, true}, {0, 1, true}, {9, 2, false}, {10, 2, false}};
  std::vector<bool> gathered(facts.size());
  for (const auto& group : plan_groups(facts, policy, kAlignment)) {
    for (const auto& tensor : group.layout.tensors) {
      gathered[static_cast<std::size_t>(tensor.index)] = group.gathered;
    }
  }
  EXPECT_EQ(gathered, (std::vector<bool>{false, true, true, false, false, true}));
  options.persistence_threshold = 0;
  for (const auto& group : plan_groups(facts, zero3_policy(options, 2), kAlignment)) {
    EXPECT_TRUE(group.gathered) << "0: nothing persists, not even an empty tensor";
  }
}

TEST(GroupPlan, BucketsFollowTheOrderOfArrivalAndTheFirstIsSmaller) {
  StrategyOptions options;
  options.bucket_bytes = 40;  // ten fp32 elements
  Policy policy = ddp_policy(options, 3);
  policy.first_bucket_bytes = 24;
  const Facts facts{{4, 0, true}, {4, 1, true}, {4, 1, false}, {4, 2, true}, {4, 2, true}, {30, 3, true}};
  const auto members = [&](const std::vector<std::int64_t>& order) {
    std::vector<std::vector<std::int64_t>> all;
    for (const auto& group : plan_groups_in_order(facts, order, policy, kAlignment)) {
      auto& indices = all.emplace_back();
      for (const auto& tensor : group.layout.tensors) {
        indices.push_back(tensor.index);
      }
    }
    return all;
  };
  using Members = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(members({5, 4, 3, 2, 1, 0}), (Members{{5}, {4, 3}, {1, 0}, {2}}));
  EXPECT_EQ(members({0, 1, 2, 3, 4, 5}), (Members{{0}, {1, 3}, {4}, {5}, {2}}));
}

TEST(GroupPlan, NothingToPlan) {
  for (const auto& technique : kTechniques) {
    EXPECT_TRUE(plan_groups({}, technique.make(kDefaults, 3), kAlignment).empty());
    const auto empty = plan_groups({{0, 0, true}, {0, 1, false}}, technique.make(kDefaults, 3), kAlignment);
    ASSERT_EQ(empty.size(), 2U);
    EXPECT_EQ(empty[0].layout.numel() + empty[1].layout.numel(), 0);
  }
}

TEST(GroupPlan, PartsOfAnyRange) {
  LayoutGroup group;
  group.end = 64;
  group.tensors = {{7, 0, 5}, {8, 16, 20}, {9, 48, 0}, {10, 48, 3}};
  const auto parts = parts_within(group, 4, 49);
  ASSERT_EQ(parts.size(), 3U);
  const auto is = [](const TensorPart& part, std::int64_t index, std::int64_t first, std::int64_t offset, std::int64_t numel) {
    return part.index == index && part.first == first && part.offset == offset && part.numel == numel;
  };
  EXPECT_TRUE(is(parts[0], 7, 4, 0, 1));
  EXPECT_TRUE(is(parts[1], 8, 0, 12, 20));
  EXPECT_TRUE(is(parts[2], 10, 0, 44, 1));
  EXPECT_TRUE(parts_within(group, 5, 16).empty()) << "padding only";
  EXPECT_TRUE(parts_within(group, 20, 20).empty());
}

TEST(VisitedByBackward, FromTheFirstUnitThatTrainsOn) {
  using Visited = std::vector<bool>;
  EXPECT_EQ(visited_by_backward({{1, 0, true}, {1, 1, true}, {1, 2, true}}), (Visited{true, true, true}));
  EXPECT_EQ(visited_by_backward({{1, 0, false}, {1, 1, false}, {1, 2, true}, {1, 3, false}}),
            (Visited{true, false, true, true}))
      << "the root encloses all; a frozen unit behind one that trains passes gradients on";
  EXPECT_EQ(visited_by_backward({{1, 0, true}, {1, 1, false}}), (Visited{true, true})) << "gradients reach back to the root";
  EXPECT_EQ(visited_by_backward({{1, 0, false}, {1, 1, false}}), (Visited{false, false})) << "nothing trains";
  EXPECT_EQ(visited_by_backward({{1, 0, false}, {1, 3, true}}), (Visited{true, false, false, true})) << "units without tensors";
  EXPECT_TRUE(visited_by_backward({}).empty());
  const ParameterFacts head{1, 0, true, true};
  EXPECT_EQ(visited_by_backward({head, {1, 1, false}, {1, 2, false}}), (Visited{true, false, false}))
      << "a head of the root over frozen units";
  EXPECT_EQ(visited_by_backward({head, {1, 1, false}, {1, 2, true}, {1, 3, false}}), (Visited{true, false, true, true}));
  EXPECT_EQ(visited_by_backward({head, {1, 0, true}, {1, 1, false}}), (Visited{true, true})) << "an embedding trains as well";
  EXPECT_EQ(visited_by_backward({{1, 0, false, true}, {1, 1, false}}), (Visited{false, false})) << "nothing trains";
}

struct Reuse : ::testing::Test {
  /// Units kept of a model of four units behind a root, 100 elements (400 bytes) each, the first of them frozen or not.
  static std::vector<bool> kept(std::int64_t reuse_elements, std::int64_t live_bytes, bool first_trains = true) {
    const Facts facts{{10, 0, first_trains}, {100, 1, first_trains}, {100, 2, true}, {100, 3, true}, {100, 4, true}};
    Policy policy;
    policy.reuse_elements = reuse_elements;
    policy.live_bytes = live_bytes;
    return keep_for_reuse(policy, facts, {40, 400, 400, 400, 400}).kept_units;
  }
};

/// Between a unit's forward and its backward the units behind it run twice.
TEST_F(Reuse, KeepsUnitsToWhichBackwardComesWithinTheDistance) {
  using Kept = std::vector<bool>;
  EXPECT_EQ(kept(0, 0), Kept{});
  EXPECT_EQ(kept(1, 0), (Kept{true, false, false, false, true})) << "nothing lies between the last unit's passes";
  EXPECT_EQ(kept(200, 0), (Kept{true, false, false, false, true})) << "200 elements are not fewer than 200";
  EXPECT_EQ(kept(201, 0), (Kept{true, false, false, true, true}));
  EXPECT_EQ(kept(1'000'000'000, 0), (Kept{true, true, true, true, true}));
}

TEST_F(Reuse, LeavesRoomForTheLargestUnitInTheBudget) {
  using Kept = std::vector<bool>;
  EXPECT_EQ(kept(1000, 40 + 3 * 400), (Kept{true, false, false, true, true}));
  EXPECT_EQ(kept(1000, 40 + 3 * 400 - 1), (Kept{true, false, false, false, true}));
  EXPECT_EQ(kept(1000, 1), (Kept{true, false, false, false, false}));
}

TEST_F(Reuse, TheLargestUnitMayBeAnyOfThem) {
  using Kept = std::vector<bool>;
  const auto kept_beside = [](std::int64_t live_bytes) {
    Policy policy;
    policy.reuse_elements = 1000;
    policy.live_bytes = live_bytes;
    return keep_for_reuse(policy, {{10, 0, true}, {300, 1, true}, {100, 2, true}}, {40, 1200, 400}).kept_units;
  };
  EXPECT_EQ(kept_beside(40 + 400 + 1200), (Kept{true, false, true}));
  EXPECT_EQ(kept_beside(40 + 400 + 1200 - 1), (Kept{true, false, false}));
}

TEST_F(Reuse, FreesWhatBackwardDoesNotVisit) {
  EXPECT_EQ(kept(1000, 0, false), (std::vector<bool>{true, false, true, true, true}));
  Policy policy;
  policy.reuse_elements = 1000;
  EXPECT_EQ(keep_for_reuse(policy, {{10, 0, false}, {100, 1, false}}, {40, 400}).kept_units, (std::vector<bool>{false, false}))
      << "nothing trains";
}

}  // namespace
}  // namespace shardmark::parallel
