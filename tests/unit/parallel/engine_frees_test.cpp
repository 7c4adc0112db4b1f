// When the engine frees what it gathered: not before backward has used it, wherever frozen tensors lie, and with what it kept
// of a unit when a pass leaves the recorded order. Rounding of sums and names of what is not finite, in narrow types.

#include <gmock/gmock.h>

#include <cmath>

#include "comm/self_communicator.hpp"
#include "tests/support/chain.hpp"

namespace shardmark::parallel {
namespace {

/// Parameters after two steps on one rank, where a unit is gathered and freed as on many.
std::vector<NamedTensor> trained_alone(const Shape& shape, const std::string& technique) {
  comm::SelfCommunicator self;
  Chain chain(shape);
  const auto strategy = make_strategy(technique, sgd(), self);
  strategy->prepare(chain.list, {});
  for (const std::int64_t first_row : {0, 100}) {
    run_step(*strategy, chain, first_row);
  }
  return strategy->gather_parameters();
}

// The trained tensor's gradient comes first; the frozen one below it is still needed for the input's.
TEST(EngineFrees, AUnitOnlyWhenItsInputGradientIsThere) {
  for (const bool checkpointing : {false, true}) {
    const Shape shape{.checkpointing = checkpointing, .frozen_below = 2};
    const auto expected = trained_alone(shape, "single");
    for (const char* technique : {"zero3", "fsdp"}) {
      std::vector<NamedTensor> found;
      ASSERT_NO_THROW(found = trained_alone(shape, technique)) << technique << ", checkpointing " << checkpointing;
      EXPECT_TRUE(same_bits(found, expected)) << technique << ", checkpointing " << checkpointing;
    }
  }
}

// The head's gradient completes those of the root; a frozen tensor of the root is needed again below block 2.
TEST(EngineFrees, TheRootOnlyWhenThePassIsOver) {
  const Shape shape{.head = true, .frozen_between = true};
  const auto expected = trained_alone(shape, "single");
  for (const char* technique : {"zero3", "fsdp"}) {
    std::vector<NamedTensor> found;
    ASSERT_NO_THROW(found = trained_alone(shape, technique)) << technique;
    EXPECT_TRUE(same_bits(found, expected)) << technique;
  }
}

/// Parameters of rank 0 after steps in which the blocks run in different orders.
std::vector<NamedTensor> trained_in_changing_order(const std::string& technique, const StrategyOptions& options) {
  std::vector<NamedTensor> parameters;
  testing::on_threads(4, [&](int rank, comm::Communicator& all) {
    Chain chain({.blocks = 4});
    const auto strategy = make_strategy(technique, options, all);
    strategy->prepare(chain.list, {});
    std::int64_t first_row = rank * 100;
    // In the second step, block 2 is gathered ahead of block 4 and is not what comes next.
    for (const auto& order : std::vector<std::vector<std::size_t>>{{0, 1, 2, 3}, {0, 3, 1, 2}, {2, 3, 1, 0}}) {
      chain.order = order;
      run_step(*strategy, chain, first_row);
      first_row += 1000;
    }
    auto found = strategy->gather_parameters();
    if (rank == 0) {
      parameters = std::move(found);
    }
  });
  return parameters;
}

TEST(EngineFrees, APassThatLeavesTheRecordedOrderGathersFromAllShardsAgain) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  const auto expected = trained_in_changing_order("ddp", options);
  options.after_forward = AfterForward::keep_part;
  options.parts = 2;
  for (const std::int64_t prefetch : {1, 2}) {
    options.prefetch = prefetch;
    std::vector<NamedTensor> found;
    ASSERT_NO_THROW(found = trained_in_changing_order("fsdp", options)) << "prefetch " << prefetch;
    EXPECT_TRUE(same_bits(found, expected)) << "prefetch " << prefetch;
  }
}

// Blocks below a head of the root are not gathered in backward while they are frozen: payload and bits agree.
TEST(EngineFrees, AHeadOfTheRootTrainsOverFrozenBlocks) {
  for (const auto& frozen : {std::vector<std::int64_t>{1, 2, 3}, std::vector<std::int64_t>{1}, std::vector<std::int64_t>{2}}) {
    const Shape shape{.head = true, .frozen = frozen};
    StrategyOptions options = sgd();
    options.order = comm::SumOrder::ordered;
    const auto reference = run_on_threads(4, shape, "ddp", options);
    for (const auto choice : {AfterForward::free, AfterForward::keep, AfterForward::keep_part}) {
      options.after_forward = choice;
      options.parts = 2;
      const auto found = run_on_threads(4, shape, "fsdp", options);
      EXPECT_DOUBLE_EQ(found.counted, found.predicted) << frozen.size() << " frozen, choice " << static_cast<int>(choice);
      EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
    }
  }
}

// Gradients in bf16 are looked at where they arrive, before any sum: rank and unit of the first one are known.
TEST(EngineNames, TheFirstGradientInBf16ThatIsNotFinite) {
  for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    for (const bool no_sync : {false, true}) {
      StrategyOptions options = sgd();
      options.precision.compute = base::DType::bf16;
      options.micro_steps = 2;
      options.no_sync = no_sync;
      testing::on_threads(3, [&](int rank, comm::Communicator& all) {
        Chain chain({});
        const auto strategy = make_strategy(technique, options, all);
        strategy->prepare(chain.list, {});
        strategy->begin_step();
        for (std::int64_t micro = 0; micro < 2; ++micro) {
          strategy->begin_micro_step(micro);
          const bool bad = rank == 1 && micro == 1;
          chain.loss(rank * 100 + 4 * micro).backward(at::full({}, bad ? std::nan("") : 1.0, at::kFloat));
          strategy->end_micro_step();
        }
        const auto summary = strategy->finish_gradients();
        EXPECT_FALSE(summary.finite) << technique;
        EXPECT_THAT(summary.nonfinite,
                    ::testing::AllOf(::testing::HasSubstr("block3.weight (unit block3)"), ::testing::HasSubstr("on rank 1")))
            << technique << ", no_sync " << no_sync;
      });
    }
  }
}

}  // namespace
}  // namespace shardmark::parallel
