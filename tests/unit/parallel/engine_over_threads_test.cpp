// The engine of all techniques over ranks that are threads: every technique and choice gives the bits of ddp under `ordered`,
// and moves exactly the bytes that its formula says.

#include <gtest/gtest.h>

#include "tests/support/chain.hpp"
#include "tests/support/late_copy_queue.hpp"

namespace shardmark::parallel {
namespace {

/// Fewer than 200 terms are added in double on either side.
constexpr double kRounding = 200 * 0x1p-53;

TEST(EngineOverThreads, TechniquesAgree) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t micro_steps : {1, 3}) {
      for (const bool no_sync : {false, true}) {
        StrategyOptions options = sgd();
        options.order = comm::SumOrder::ordered;
        options.micro_steps = micro_steps;
        options.no_sync = no_sync;
        const auto reference = run_on_threads(ranks, {}, "ddp", options);
        for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
          for (const bool checkpointing : {false, true}) {
            const auto found = run_on_threads(ranks, {.checkpointing = checkpointing}, technique, options);
            EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted) << technique << " at " << ranks;
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << technique << " at " << ranks;
          }
        }
      }
    }
  }
}

TEST(EngineOverThreads, BlocksOfStatesAreTheSameInEveryTechnique) {
  // kWidth^2 elements are small tensors; the wide chain's are not.
  for (const std::int64_t width : {kWidth, 3 * kWidth}) {
    StrategyOptions options = sgd();
    options.optimizer.name = "adamw8bit";
    options.optimizer.weight_decay = 0.1;
    options.precision.state_block = optim::state_block(options.optimizer.name);
    options.order = comm::SumOrder::ordered;
    for (const int ranks : {1, 2, 3}) {
      const Shape shape{.head = true, .width = width};
      const auto reference = run_on_threads(ranks, shape, "ddp", options);
      for (const char* technique : {"zero1", "zero2", "zero3", "fsdp"}) {
        const auto found = run_on_threads(ranks, shape, technique, options);
        EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << technique << " at " << ranks << ", width " << width;
      }
      options.optimizer.name = "adamw";
      EXPECT_FALSE(same_bits(run_on_threads(ranks, shape, "ddp", options).parameters, reference.parameters) && width > kWidth)
          << "codes were not used";
      options.optimizer.name = "adamw8bit";
    }
  }
}

/// Copies come as late as they may: whatever reads a range before its update is back reads NaN.
TEST(EngineOverThreads, OffloadChangesNoBit) {
  for (const char* optimizer : {"sgd", "adamw", "adamw8bit"}) {
    for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
      StrategyOptions options;
      options.order = comm::SumOrder::ordered;
      options.micro_steps = 2;
      options.bucket_bytes = 1 << 14;  // a block or less: more ranges than are staged at once
      options.optimizer.name = optimizer;
      options.optimizer.weight_decay = 0.1;
      options.optimizer.momentum = 0.9;
      options.precision.compute = options.precision.frozen = compute;
      options.precision.state_block = optim::state_block(optimizer);
      for (const int ranks : {1, 2, 3}) {
        for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
          const Shape shape{.blocks = 4, .head = true, .empty_unit = true, .frozen = {2}, .width = 3 * kWidth};
          options.optimizer.offload = nullptr;
          const auto plain = run_on_threads(ranks, shape, technique, options);
          options.optimizer.offload = testing::make_late_copy_queue;
          const auto offloaded = run_on_threads(ranks, shape, technique, options);
          EXPECT_TRUE(same_bits(offloaded.parameters, plain.parameters))
              << technique << " at " << ranks << ", " << optimizer << ", compute of " << base::size_of(compute) << " bytes";
          EXPECT_EQ(offloaded.counted, plain.counted);
        }
      }
    }
  }
}

TEST(EngineOverThreads, HybridGivesTheBitsOfPlainSharding) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  const auto reference = run_on_threads(4, {}, "fsdp", options);
  for (const std::int64_t share : {1, 2, 4}) {
    options.shard_group = share;
    const auto hybrid = run_on_threads(4, {}, "fsdp", options);
    EXPECT_NEAR(hybrid.counted, hybrid.predicted, kRounding * hybrid.predicted);
    EXPECT_TRUE(same_bits(hybrid.parameters, reference.parameters)) << share;
  }
}

TEST(EngineOverThreads, AUnitOfEmptyTensorsTrains) {
  for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    const auto found = run_on_threads(4, {.empty_unit = true}, technique, sgd());
    EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
  }
}

TEST(EngineOverThreads, ChoicesAgree) {
  for (const auto& shape :
       {Shape{.head = true}, Shape{.head = true, .frozen = {0, 1}}, Shape{.frozen = {2}}, Shape{.frozen = {1}}}) {
    for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
      StrategyOptions options = sgd();
      options.order = comm::SumOrder::ordered;
      options.micro_steps = 2;
      options.precision.compute = compute;
      options.precision.frozen = compute == base::DType::bf16 ? base::DType::fp32 : base::DType::bf16;
      const auto reference = run_on_threads(4, shape, "ddp", options);
      for (const auto choice : {AfterForward::free, AfterForward::keep, AfterForward::keep_part}) {
        for (const char* profile : {"native", "fsdp2"}) {
          options.after_forward = choice;
          options.parts = 2;
          options.profile = profile;
          const auto found = run_on_threads(4, shape, "fsdp", options);
          EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
          EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
        }
      }
      options.after_forward.reset();  // a choice beats the profile: only without one does fsdp2 keep its root
      const auto as_fsdp2 = run_on_threads(4, shape, "fsdp", options);
      EXPECT_NEAR(as_fsdp2.counted, as_fsdp2.predicted, kRounding * as_fsdp2.predicted);
      EXPECT_TRUE(same_bits(as_fsdp2.parameters, reference.parameters));
      for (const std::int64_t threshold : {std::int64_t{0}, kWidth * kWidth + 1}) {
        options.profile = "deepspeed";  // keeps what backward soon comes to
        options.persistence_threshold = threshold;
        const auto as_deepspeed = run_on_threads(4, shape, "zero3", options);
        EXPECT_NEAR(as_deepspeed.counted, as_deepspeed.predicted, kRounding * as_deepspeed.predicted);
        EXPECT_TRUE(same_bits(as_deepspeed.parameters, reference.parameters));
      }
      options.persistence_threshold.reset();
      options.profile = "native";
      for (std::int64_t prefetch = 0; prefetch <= 3; ++prefetch) {
        for (const bool overlap : {true, false}) {
          for (const std::int64_t live : {0L, 4 * 2 * kWidth * kWidth * 2 + 4096}) {
            options.prefetch = prefetch;
            options.overlap = overlap;
            options.live_bytes = live;
            const auto found = run_on_threads(4, shape, prefetch % 2 == 0 ? "zero3" : "fsdp", options);
            EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << "prefetch " << prefetch << " overlap " << overlap;
          }
        }
      }
      options.overlap = true;
      options.live_bytes.reset();
      options.persistence_threshold = kWidth * kWidth + 1;
      const auto found = run_on_threads(4, shape, "zero3", options);
      EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
      EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
    }
  }
}

}  // namespace
}  // namespace shardmark::parallel
