// Faults of the engine that a test shows; over ranks that are threads, or one rank alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"
#include "device/memory_ledger.hpp"
#include "tests/support/chain.hpp"

namespace shardmark::parallel {
namespace {

// Sharded parameters are made whole, all at once, while the strategy is prepared.
TEST(EngineFault, PreparingAShardedModelHoldsOneUnitWholeAtMost) {
  device::install_memory_ledger();
  comm::SelfCommunicator self;
  Chain chain({.blocks = 8});
  const auto strategy = make_strategy("zero3", sgd(), self);
  device::reset_memory_peaks();
  strategy->prepare(chain.list, {});
  const auto gathered = static_cast<std::size_t>(device::MemoryCategory::gathered);
  EXPECT_LE(device::memory_snapshot().run_peak[gathered], 4 * kWidth * kWidth);
}

// A unit with an unused tensor is not freed in backward: the budget is broken, and the run fails by an invariant.
TEST(EngineFault, UnusedParametersDoNotBreakTheBudget) {
  comm::SelfCommunicator self;
  Chain chain({.extra = true});
  StrategyOptions options = sgd();
  options.allow_unused = true;
  options.live_bytes = 4 * (kWidth * kWidth + 16);
  const auto strategy = make_strategy("zero3", options, self);
  strategy->prepare(chain.list, {});
  EXPECT_NO_THROW(run_step(*strategy, chain, 0));
}

// A pass that leaves the recorded order breaks the budget: what was gathered ahead stays.
TEST(EngineFault, ADeviationKeepsTheBudget) {
  GatherSchedule schedule({0, 10, 10, 10}, {.prefetch = 1, .prefetch_bytes = 0, .budget_bytes = 20});
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> dropped;
  const auto pass = [&](const std::vector<std::int64_t>& order) {
    for (const auto unit : order) {
      schedule.visit(unit, start, dropped);
      schedule.release(unit, start);
    }
    schedule.end_pass(start);
  };
  pass({1, 2, 3});
  EXPECT_NO_THROW(pass({1, 3, 2}));
  GatherSchedule tight({0, 10, 10, 10, 10}, {.prefetch = 2, .prefetch_bytes = 0, .budget_bytes = 20});
  for (const std::int64_t unit : {1, 2, 3, 4}) {
    tight.visit(unit, start, dropped);
    tight.release(unit, start);
  }
  tight.end_pass(start);
  tight.visit(1, start, dropped);
  tight.release(1, start);
  EXPECT_NO_THROW(tight.visit(4, start, dropped)) << "2 and 3 are held ahead and fill the budget";
}

// Hybrid under `ordered` with a narrow reduce type: partials must travel in fp32 and be rounded at the end only.
TEST(EngineFault, HybridPartialsTravelInFp32UnderOrdered) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  options.precision.reduce = base::DType::bf16;
  for (const std::int64_t micro_steps : {1, 3}) {  // from 2 on, sums over ranks are added to fp32: rounded before that
    for (const bool no_sync : {false, true}) {
      options.micro_steps = micro_steps;
      options.no_sync = no_sync;
      options.shard_group = 0;
      const auto reference = run_on_threads(4, {}, "fsdp", options);
      options.shard_group = 2;
      const auto hybrid = run_on_threads(4, {}, "fsdp", options);
      EXPECT_NEAR(hybrid.counted, hybrid.predicted, 1e-9 * hybrid.predicted);
      EXPECT_TRUE(same_bits(hybrid.parameters, reference.parameters))
          << "contiguous groups of a power of two give the same bits; micro-steps " << micro_steps << ", no_sync " << no_sync;
    }
  }
}

// Two recomputed units use one tensor: its first gradient is lost without a word.
TEST(EngineFault, AGradientThatArrivesTwiceIsNotLost) {
  const auto plain = run_on_threads(1, {.shared = true}, "single", [] {
    auto options = sgd();
    options.allow_unused = true;
    return options;
  }());
  auto options = sgd();
  options.allow_unused = true;
  Outcome recomputed;
  try {
    recomputed = run_on_threads(1, {.checkpointing = true, .shared = true}, "single", options);
  } catch (const base::Error&) {
    return;  // refused: also good
  }
  EXPECT_TRUE(same_bits(plain.parameters, recomputed.parameters));
}

/// What each of three ranks throws when `options` may differ between them and block 2 has a tensor that no loss depends on.
template <typename Options>
std::vector<std::exception_ptr> train_three(const std::string& technique, const Options& options) {
  return testing::outcomes_on_threads(3, [&](int rank, comm::Communicator& all) {
    Chain chain({.extra = true});
    const auto strategy = make_strategy(technique, options(rank), all);
    strategy->prepare(chain.list, {});
    run_step(*strategy, chain, rank * 100);
    run_step(*strategy, chain, 1000 + rank * 100);
  });
}

template <typename E>
std::string message_of(const std::exception_ptr& thrown) {
  try {
    if (thrown != nullptr) {
      std::rethrow_exception(thrown);
    }
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type of exception: ") + error.what();
  }
  return "nothing thrown";
}

// One rank stops where the others go on. Not ddp: it sums on the caller's communicator, which lives longer than the buffers.
TEST(EngineFault, AParameterUnusedOnOneRankEndsTheOthers) {
  for (const char* technique : {"zero1", "zero2", "zero3", "fsdp"}) {
    const auto thrown = train_three(technique, [](int rank) {
      StrategyOptions options = sgd();
      options.bucket_bytes = 4 * kWidth * kWidth;
      options.allow_unused = rank != 1;
      return options;
    });
    EXPECT_THAT(message_of<base::Error>(thrown[1]),
                ::testing::ContainsRegex("rank 1: reduce_scatter of the gradients of .* cannot start: .*block2.extra"));
    for (const std::size_t other : {0U, 2U}) {
      EXPECT_THAT(message_of<base::RemoteError>(thrown[other]), ::testing::StartsWith("rank 1 of group ")) << technique;
    }
  }
}

// Threads compare what they start as the checking decorator does over MPI, which runs over nothing else.
TEST(EngineFault, RanksWhoseCollectivesDifferAreStoppedOverThreadsToo) {
  for (const char* technique : {"ddp", "zero1", "zero2"}) {
    const auto thrown = train_three(technique, [](int rank) {
      StrategyOptions options = sgd();
      options.allow_unused = true;
      options.bucket_bytes = rank == 1 ? 1 : 1 << 20;
      return options;
    });
    for (const auto& each : thrown) {
      EXPECT_THAT(message_of<base::MismatchError>(each), ::testing::HasSubstr("rank 0 started ")) << technique;
    }
  }
}

// Every bucket is a multiple of A x N elements in every technique.
TEST(EngineFault, GroupsOfAllTechniquesArePaddedToAllRanks) {
  const std::vector<ParameterFacts> facts{{100, 1, true}, {7, 2, true}, {31, 2, false}};
  StrategyOptions hybrid = sgd();
  hybrid.shard_group = 2;
  for (const Policy& policy : {ddp_policy(sgd(), 4), zero1_policy(sgd(), 4), fsdp_policy(hybrid, 4)}) {
    for (const auto& group : plan_groups(facts, policy, 16)) {
      EXPECT_EQ(group.layout.numel() % (16 * 4), 0) << group.layout.numel();
    }
  }
}

// A unit of empty tensors.
TEST(EngineFault, AnEmptyUnitCanBeKeptInParts) {
  StrategyOptions options = sgd();
  options.after_forward = AfterForward::keep_part;
  options.parts = 2;
  const auto found = run_on_threads(4, {.empty_unit = true}, "fsdp", options);
  EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
}
TEST(EngineFault, AFaultCanBePlantedBesideAnEmptyUnit) {
  comm::SelfCommunicator self;
  Chain chain({.empty_unit = true});
  const auto strategy = make_strategy("zero3", sgd(), self);
  strategy->prepare(chain.list, {});
  std::vector<torch::Tensor> before;
  for (const auto& tensor : strategy->gather_parameters()) {
    before.push_back(tensor.values.clone());
  }
  strategy->flip_bit(0);
  const auto after = strategy->gather_parameters();
  std::int64_t changed = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    changed += (after[i].values != before[i]).sum().item<std::int64_t>();
  }
  EXPECT_EQ(changed, 1);
}

}  // namespace
}  // namespace shardmark::parallel
