// What each technique is, by profile and keys, and what it refuses.

#include "parallel/policy.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {
namespace {

const StrategyOptions kDefaults;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The text of the refusal, which must be of exit code 2; "" if there is none.
std::string refusal(MakePolicy make, const StrategyOptions& options, std::int64_t ranks) {
  try {
    static_cast<void>(make(options, ranks));
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 2);
    EXPECT_EQ(error.problems().size(), 1U);
    return error.problems().front();
  }
  return "";
}

StrategyOptions of_profile(const std::string& profile) {
  StrategyOptions options;
  options.profile = profile;
  return options;
}

TEST(Policy, WhatIsShardedGrowsFromTechniqueToTechnique) {
  struct Row {
    MakePolicy make;
    bool parameters, gradients, state;
  };
  for (const std::int64_t ranks : {1, 2, 3, 4, 7}) {
    for (const Row& row :
         {Row{ddp_policy, false, false, false}, Row{zero1_policy, false, false, true}, Row{zero2_policy, false, true, true},
          Row{zero3_policy, true, true, true}, Row{fsdp_policy, true, true, true}}) {
      for (const char* profile : {"native", "fsdp2", "deepspeed"}) {
        const Policy policy = row.make(of_profile(profile), ranks);
        EXPECT_EQ(policy.shard_parameters, row.parameters);
        EXPECT_EQ(policy.shard_gradients, row.gradients);
        EXPECT_EQ(policy.shard_state, row.state);
        EXPECT_EQ(policy.shards, row.state ? ranks : 1);
        EXPECT_EQ(policy.rebuild_buckets, row.make == ddp_policy && ranks > 1);
        EXPECT_EQ(policy.after_forward, AfterForward::free) << "in every profile, but for FSDP2's root";
        EXPECT_EQ(policy.keep_root, row.make == fsdp_policy && std::string(profile) == "fsdp2");
      }
    }
  }
}

TEST(Policy, SingleIsForOneRank) {
  EXPECT_FALSE(single_policy(kDefaults, 1).rebuild_buckets);
  EXPECT_FALSE(single_policy(kDefaults, 1).shard_state);
  EXPECT_EQ(refusal(single_policy, kDefaults, 2),
            "technique.name = \"single\" trains on one rank, not on 2: start one, or choose another technique");
}

TEST(Policy, NativeDefaults) {
  for (const MakePolicy make : {zero3_policy, fsdp_policy}) {
    const Policy policy = make(kDefaults, 4);
    EXPECT_EQ(policy.prefetch, 1);
    EXPECT_EQ(policy.prefetch_bytes, 0);
    EXPECT_EQ(policy.live_bytes, 0);
    EXPECT_EQ(policy.persistence_threshold, 0);
    EXPECT_FALSE(policy.keep_root);
    EXPECT_EQ(policy.reuse_elements, 0);
    EXPECT_LE(policy.first_bucket_bytes, policy.bucket_bytes);
  }
}

TEST(Policy, DeepSpeedsDefaultsCountElements) {
  // DeepSpeed's configuration: reduce_bucket_size 5e8, stage3_prefetch_bucket_size 5e7, stage3_max_live_parameters 1e9,
  // stage3_param_persistence_threshold 1e5, stage3_max_reuse_distance 1e9, all in elements.
  for (const auto& [type, width] : {std::pair{base::DType::fp32, 4}, std::pair{base::DType::bf16, 2}}) {
    StrategyOptions options = of_profile("deepspeed");
    options.precision.compute = type;
    const Policy policy = zero3_policy(options, 4);
    EXPECT_EQ(policy.prefetch, kNoLimit);
    EXPECT_EQ(policy.prefetch_bytes, 50'000'000 * width);
    EXPECT_EQ(policy.live_bytes, 1'000'000'000LL * width);
    EXPECT_EQ(policy.persistence_threshold, 100'000);
    EXPECT_EQ(policy.reuse_elements, 1'000'000'000);
    for (const MakePolicy make : {zero1_policy, zero2_policy, zero3_policy}) {
      EXPECT_EQ(make(options, 4).bucket_bytes, 2'000'000'000) << "buckets are cut in fp32 elements whatever the type";
      EXPECT_EQ(make(options, 4).first_bucket_bytes, 2'000'000'000);
    }
  }
}

TEST(Policy, AKeyBeatsTheProfile) {
  for (const char* profile : {"native", "fsdp2", "deepspeed"}) {
    StrategyOptions options = of_profile(profile);
    options.prefetch = 3;
    options.live_bytes = 1000;
    options.persistence_threshold = 7;
    options.bucket_bytes = 4096;
    for (const MakePolicy make : {zero3_policy, fsdp_policy}) {
      const Policy policy = make(options, 4);
      EXPECT_EQ(policy.prefetch, 3);
      EXPECT_EQ(policy.prefetch_bytes, 0) << "units asked for are not cut by the profile's bytes";
      EXPECT_EQ(policy.live_bytes, 1000);
      EXPECT_EQ(policy.persistence_threshold, 7);
      EXPECT_EQ(policy.bucket_bytes, 4096);
    }
    options.live_bytes = 0;
    options.persistence_threshold = 0;
    EXPECT_EQ(zero3_policy(options, 4).live_bytes, 0) << "an explicit 0 is no limit";
    EXPECT_EQ(zero3_policy(options, 4).persistence_threshold, 0);
  }
}

TEST(Policy, WithoutOverlapNothingIsGatheredAhead) {
  for (const char* profile : {"native", "fsdp2", "deepspeed"}) {
    StrategyOptions options = of_profile(profile);
    options.overlap = false;
    EXPECT_EQ(zero3_policy(options, 4).prefetch, 0);
    options.prefetch = 2;
    EXPECT_EQ(fsdp_policy(options, 4).prefetch, 0);
  }
}

TEST(Policy, FsdpKeepsWhatItIsTold) {
  StrategyOptions options = of_profile("fsdp2");
  for (const auto choice : {AfterForward::free, AfterForward::keep}) {
    options.after_forward = choice;
    EXPECT_EQ(fsdp_policy(options, 4).after_forward, choice);
    EXPECT_FALSE(fsdp_policy(options, 4).keep_root) << "asked for, it holds for the root too";
    EXPECT_EQ(zero3_policy(options, 4).after_forward, AfterForward::free) << "not a key of zero3";
  }
  options.profile = "deepspeed";
  options.after_forward = AfterForward::free;
  EXPECT_EQ(fsdp_policy(options, 4).reuse_elements, 0) << "asked for, it beats the profile";
  EXPECT_GT(zero3_policy(options, 4).reuse_elements, 0);
  options.after_forward = AfterForward::keep_part;
  options.parts = 2;
  EXPECT_EQ(fsdp_policy(options, 4).after_forward, AfterForward::keep_part);
  EXPECT_EQ(fsdp_policy(options, 4).parts, 2);
}

TEST(Policy, ShardGroupMustDivideTheRanks) {
  StrategyOptions options;
  for (const auto& [group, ranks, shards] : {std::tuple{0, 6, 6}, {1, 6, 1}, {2, 6, 2}, {3, 6, 3}, {6, 6, 6}, {1, 1, 1}}) {
    options.shard_group = group;
    EXPECT_EQ(fsdp_policy(options, ranks).shards, shards);
  }
  options.shard_group = 3;
  EXPECT_EQ(refusal(fsdp_policy, options, 8),
            "technique.shard_group = 3 does not divide the 8 ranks: accepted are 0 (all), \"node\", 1, 2, 4, 8");
  options.shard_group = 16;
  EXPECT_EQ(refusal(fsdp_policy, options, 8),
            "technique.shard_group = 16 does not divide the 8 ranks: accepted are 0 (all), \"node\", 1, 2, 4, 8");
  options.shard_group = 3;
  EXPECT_EQ(zero3_policy(options, 8).shards, 8) << "not a key of zero3";
}

TEST(Policy, ReshardPartMustDivideTheRanksThatShare) {
  StrategyOptions options;
  options.after_forward = AfterForward::keep_part;
  const auto text = [&](std::int64_t parts, std::int64_t ranks) {
    options.parts = parts;
    return refusal(fsdp_policy, options, ranks);
  };
  const auto expected = [](int parts, int shares, const std::string& accepted) {
    return fmt::format(
        "technique.reshard_after_forward = {}: it must divide the {} ranks that share one copy and lie between 1 and "
        "that number; accepted are true, false, {}",
        parts, shares, accepted);
  };
  EXPECT_EQ(text(2, 8), "");
  EXPECT_EQ(text(4, 8), "");
  EXPECT_EQ(text(3, 8), expected(3, 8, "2, 4"));
  EXPECT_EQ(text(8, 8), expected(8, 8, "2, 4"));
  EXPECT_EQ(text(1, 8), expected(1, 8, "2, 4"));
  EXPECT_EQ(text(2, 3), expected(2, 3, "none"));
  EXPECT_EQ(text(2, 1), expected(2, 1, "none"));
  options.shard_group = 4;
  EXPECT_EQ(text(2, 8), "");
  EXPECT_EQ(text(4, 8), expected(4, 4, "2"));
}

TEST(Policy, AnUnknownTechniqueIsRefusedWithTheKnownOnes) {
  comm::SelfCommunicator self;
  try {
    static_cast<void>(make_strategy("zero4", kDefaults, self));
    FAIL() << "zero4 is no technique";
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.problems().front(), "technique.name = \"zero4\": accepted are single, ddp, zero1, zero2, zero3, fsdp");
  }
}

}  // namespace
}  // namespace shardmark::parallel
