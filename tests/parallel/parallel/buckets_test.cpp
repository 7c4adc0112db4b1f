// Memory of gradients on their way: gone when a step's reductions are over, and never more than predicted.

#include <string>

#include "comm/factory.hpp"
#include "device/memory_ledger.hpp"
#include "tests/support/chain.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {
namespace {

constexpr auto kBuckets = static_cast<std::size_t>(device::MemoryCategory::buckets);

/// Eight blocks, more than travel at once; of three steps, the later two are watched: before the first one's end ddp has other
/// buckets than are predicted.
void expect_buckets_as_predicted(const std::string& technique, const parallel::StrategyOptions& options,
                                 const std::string& what) {
  auto stack = comm::make_communicator(test_world(), {});
  parallel::Chain chain({.blocks = 8});
  const auto strategy = parallel::make_strategy(technique, options, stack.communicator());
  strategy->prepare(chain.list, {});
  for (std::int64_t step = 0; step < 3; ++step) {
    if (step == 1) {
      device::reset_memory_peaks();
    }
    strategy->begin_step();
    for (std::int64_t micro = 0; micro < options.micro_steps; ++micro) {
      strategy->begin_micro_step(micro);
      chain.loss(100 * test_world().rank() + 4 * micro).backward();
      strategy->end_micro_step();
    }
    static_cast<void>(strategy->finish_gradients());
    EXPECT_EQ(device::memory_snapshot().current[kBuckets], 0) << what << ", step " << step;
    strategy->update(0.01, 1);
    strategy->end_step();
  }
  const std::int64_t predicted = strategy->predicted_bytes()[kBuckets];
  const std::int64_t peak = device::memory_snapshot().run_peak[kBuckets];
  EXPECT_LE(peak, predicted) << what;
  EXPECT_EQ(peak > 0, predicted > 0) << what << ": where buckets are predicted, there are some";
}

TEST(Buckets, AreFreedAndWithinThePrediction) {
  device::install_memory_ledger();
  for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    for (const auto reduce : {base::DType::fp32, base::DType::bf16}) {
      for (const std::int64_t micro_steps : {1, 3}) {
        for (const bool no_sync : {false, true}) {
          parallel::StrategyOptions options = parallel::sgd();
          options.bucket_bytes = 4 * parallel::kWidth * parallel::kWidth;  // a bucket for each block
          options.precision.reduce = reduce;
          options.micro_steps = micro_steps;
          options.no_sync = no_sync;
          expect_buckets_as_predicted(technique, options,
                                      std::string(technique) + (reduce == base::DType::bf16 ? ", bf16" : ", fp32") +
                                          ", micro-steps " + std::to_string(micro_steps) + (no_sync ? ", no_sync" : ", sync"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardmark::testing
