// A plan against the engine itself: every technique's strategy trains as one rank of many over the dry-run communicator, at
// more ranks than any test machine has, and must send, keep and gather what the plan says.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/counting_communicator.hpp"
#include "comm/dry_run_communicator.hpp"
#include "parallel/plan_technique.hpp"
#include "tests/support/chain.hpp"

namespace shardmark::parallel {
namespace {

using device::MemoryCategory;

/// Fewer than 200 terms are added in double on either side.
constexpr double kRounding = 200 * 0x1p-53;

std::int64_t bytes_of(const device::CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}

/// One rank of `ranks`, whose splits the engine makes by the policy's own numbers.
std::unique_ptr<comm::CountingCommunicator> one_of_many(int rank, int ranks, const Policy& policy) {
  auto dry = std::make_unique<comm::DryRunCommunicator>(rank, ranks);
  const auto shards = static_cast<int>(policy.shards);
  const auto parts = static_cast<int>(policy.parts);
  dry->set_colors("gather", [shards](int other) { return other / shards; });
  dry->set_colors("scatter", [shards](int other) { return other / shards; });
  dry->set_colors("replica", [shards](int other) { return other % shards; });
  dry->set_colors("part", [parts](int other) { return other / parts; });
  return std::make_unique<comm::CountingCommunicator>(std::move(dry));
}

void expect_as_planned(const std::string& technique, const StrategyOptions& options, int rank, int ranks, const Shape& shape) {
  const std::string name = technique + " as rank " + std::to_string(rank) + " of " + std::to_string(ranks);
  const auto before = device::memory_snapshot();
  const auto communicator = one_of_many(rank, ranks, make_policy(technique, options, ranks));
  Chain chain(shape);
  const auto plan = plan_technique(technique, options, chain.list, ranks);
  const auto strategy = make_strategy(technique, options, *communicator);
  strategy->prepare(chain.list, {});
  const auto step = [&](std::int64_t first_row) {
    strategy->begin_step();
    for (std::int64_t micro = 0; micro < options.micro_steps; ++micro) {
      strategy->begin_micro_step(micro);
      chain.loss(first_row + 4 * micro).backward();
      strategy->end_micro_step();
    }
    static_cast<void>(strategy->finish_gradients());  // of values that nobody sent
    strategy->update(0.01, 1);
    strategy->end_step();
  };
  step(0);  // records the order of units, and ddp cuts its buckets anew
  device::reset_memory_peaks();
  communicator->counts().reset();
  step(100);
  const auto seen = device::memory_snapshot();
  double counted = 0;
  for (const auto& row : communicator->counts().rows()) {
    counted += row.purpose == comm::Purpose::control ? 0 : row.wire_bytes;
  }
  EXPECT_NEAR(counted, plan.payload_bytes, kRounding * plan.payload_bytes) << name;
  for (const auto category :
       {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer_state, MemoryCategory::offloaded}) {
    EXPECT_EQ(bytes_of(seen.current, category) - bytes_of(before.current, category), bytes_of(plan.persistent, category))
        << name << ", " << device::name_of(category);
  }
  EXPECT_EQ(bytes_of(seen.run_peak, MemoryCategory::gathered),
            std::max(bytes_of(plan.forward, MemoryCategory::gathered), bytes_of(plan.backward, MemoryCategory::gathered)))
      << name;
  EXPECT_LE(bytes_of(seen.run_peak, MemoryCategory::buckets), bytes_of(plan.backward, MemoryCategory::buckets)) << name;
}

/// A tensor of the root that is used after the blocks; a frozen block in front; both.
void expect_as_planned(const std::string& technique, const StrategyOptions& options, int rank, int ranks) {
  expect_as_planned(technique, options, rank, ranks, {.head = true});
  expect_as_planned(technique, options, rank, ranks, {.frozen = {1}});
  expect_as_planned(technique, options, rank, ranks, {.head = true, .frozen = {1}});
}

class DryRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_memory_ledger(); }
};

TEST_F(DryRun, EveryTechniqueDoesWhatItsPlanSays) {
  for (const int ranks : {1, 2, 7, 64, 1000}) {
    for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
      for (const auto& [micro_steps, no_sync] : {std::pair{1, false}, {3, false}, {3, true}}) {
        for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
          StrategyOptions options;
          options.optimizer.name = "adamw";
          options.micro_steps = micro_steps;
          options.no_sync = no_sync;
          options.precision.compute = options.precision.frozen = compute;
          expect_as_planned(technique, options, ranks - 1, ranks);
        }
      }
    }
  }
}

TEST_F(DryRun, BlocksOfStatesCountExactly) {
  for (const int ranks : {1, 2, 7, 64}) {
    for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
      StrategyOptions options;
      options.optimizer.name = "adamw8bit";
      options.precision.state_block = optim::state_block(options.optimizer.name);
      // Rank 0 holds the most where parts differ: a group's padding lies at its end.
      expect_as_planned(technique, options, 0, ranks, {.head = true, .width = 3 * kWidth});
    }
  }
}

TEST_F(DryRun, OffloadedStatesAndStagingCountExactly) {
  for (const int ranks : {1, 2, 7, 64}) {
    for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
      for (const char* optimizer : {"adamw", "adamw8bit"}) {
        for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
          StrategyOptions options;
          options.optimizer.name = optimizer;
          options.optimizer.offload = device::make_host_copy_queue;
          options.precision.state_block = optim::state_block(options.optimizer.name);
          options.precision.compute = options.precision.reduce = options.precision.frozen = compute;
          expect_as_planned(technique, options, 0, ranks, {.head = true, .width = 3 * kWidth});
        }
      }
    }
  }
}

TEST_F(DryRun, SoDoTheirChoices) {
  for (const int ranks : {4, 64, 1000}) {
    StrategyOptions options = sgd();
    options.shard_group = ranks / 2;
    expect_as_planned("fsdp", options, 1, ranks);
    options.shard_group = 0;
    options.persistence_threshold = kWidth * kWidth + 1;
    expect_as_planned("zero3", options, 1, ranks);
    options.persistence_threshold.reset();
    options.after_forward = AfterForward::keep;
    expect_as_planned("fsdp", options, 1, ranks);
    options.after_forward = AfterForward::keep_part;
    options.parts = 2;
    expect_as_planned("fsdp", options, 1, ranks);
    options.after_forward.reset();
    for (const char* profile : {"fsdp2", "deepspeed"}) {
      options.profile = profile;
      expect_as_planned(std::string(profile) == "fsdp2" ? "fsdp" : "zero3", options, 1, ranks);
    }
    options.persistence_threshold = 0;  // or every tensor of this model stays whole
    expect_as_planned("zero3", options, 1, ranks);
  }
}

/// The head's gradient comes first, though it is declared first: after step 0 the buckets are cut anew.
void expect_no_two_layouts_side_by_side(const device::MakeCopyQueue& offload) {
  StrategyOptions options;
  options.optimizer.name = "adamw";
  options.optimizer.offload = offload;
  const auto communicator = one_of_many(1, 2, make_policy("ddp", options, 2));
  Chain chain({.head = true});
  const auto strategy = make_strategy("ddp", options, *communicator);
  strategy->prepare(chain.list, {});
  strategy->begin_step();
  strategy->begin_micro_step(0);
  chain.loss(0).backward();
  strategy->end_micro_step();
  static_cast<void>(strategy->finish_gradients());
  strategy->update(0.01, 1);
  const void* place = chain.list.parameters().front().value.const_data_ptr();
  const std::int64_t before = device::memory_snapshot().current_total;
  device::reset_memory_peaks();
  strategy->end_step();
  ASSERT_NE(chain.list.parameters().front().value.const_data_ptr(), place) << "nothing was rebuilt";
  EXPECT_EQ(device::memory_snapshot().current_total, before);
  EXPECT_LE(device::memory_snapshot().run_peak_total, before);
}

TEST_F(DryRun, TwoLayoutsNeverStandSideBySide) {
  expect_no_two_layouts_side_by_side(nullptr);
  expect_no_two_layouts_side_by_side(device::make_host_copy_queue);
}

}  // namespace
}  // namespace shardmark::parallel
