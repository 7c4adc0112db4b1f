// Training under `ordered` equals the definition bit for bit, however buckets, overlap and accumulation are set.

#include <cmath>
#include <string>
#include <tuple>

#include "tests/parallel/parallel/definition.hpp"
#include "train/replica_check.hpp"

namespace shardmark::testing {
namespace {

constexpr double kClip = 0.05;  // below every norm of these steps, which the tests check

/// (technique, no_sync)
class OrderedTraining : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  [[nodiscard]] static std::string technique() { return std::get<0>(GetParam()); }
  [[nodiscard]] static parallel::StrategyOptions options() {
    auto options = tiny_strategy_options();
    options.order = comm::SumOrder::ordered;
    options.micro_steps = 3;
    options.no_sync = std::get<1>(GetParam());
    return options;
  }
};

/// Three steps of both. Collective; never stops on one rank alone.
void expect_as_defined(const std::string& technique, const parallel::StrategyOptions& options, const TinyOptions& tiny,
                       double clip) {
  TinyRun run(technique, options, tiny, clip);
  Definition defined(options, tiny, clip);
  for (std::int64_t step = 0; step < 3; ++step) {
    run.step(step);
    defined.step(step);
    EXPECT_TRUE(equal_tensors(run.gradients, defined.gradients())) << "gradients of step " << step;
    EXPECT_TRUE(equal_tensors(run.parameters, defined.parameters())) << "parameters after step " << step;
    EXPECT_TRUE(run.summary.finite);
    // The integer sum is exact; its conversion to double may round twice, once by word: an ulp, which DOUBLE_EQ's 4 contain.
    EXPECT_DOUBLE_EQ(run.summary.norm, defined.norm);
    EXPECT_EQ(clip_coefficient(kClip, run.summary.norm), clip_coefficient(kClip, defined.norm));
  }
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithClipping) {
  expect_as_defined(technique(), options(), {}, kClip);
}

TEST_P(OrderedTraining, ClippingOfTheseStepsChangesGradients) {
  Definition defined(options(), {}, kClip);
  for (std::int64_t step = 0; step < 3; ++step) {
    defined.step(step);
    EXPECT_LT(defined.coefficient, 1.0F) << "a test of clipping that clips nothing";
  }
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithoutClipping) {
  expect_as_defined(technique(), options(), {}, 0);
}

TEST_P(OrderedTraining, EqualsTheDefinitionInOneBucketWithoutOverlap) {
  auto chosen = options();
  chosen.bucket_bytes.reset();
  chosen.overlap = false;
  expect_as_defined(technique(), chosen, {}, kClip);
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithDecayOfMatricesOnly) {
  auto chosen = options();
  chosen.decay_matrices_only = true;
  expect_as_defined(technique(), chosen, {}, kClip);
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithMomentum) {
  auto chosen = options();
  chosen.optimizer.name = "sgd";
  chosen.optimizer.momentum = 0.9;
  expect_as_defined(technique(), chosen, {}, kClip);
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithAFrozenParameter) {
  expect_as_defined(technique(), options(), {.frozen_body = true}, kClip);
}

TEST_P(OrderedTraining, UnusedParametersCountAsZeroWhereAllowed) {
  auto chosen = options();
  chosen.allow_unused = true;
  expect_as_defined(technique(), chosen, {.gate = Gate::unused}, kClip);
  expect_as_defined(technique(), chosen, {.gate = Gate::unused_on_last_rank}, kClip);
}

TEST_P(OrderedTraining, EqualsTheDefinitionWithReductionsInBf16) {
  auto chosen = options();
  chosen.precision.reduce = base::DType::bf16;
  expect_as_defined(technique(), chosen, {}, kClip);
  for (const std::int64_t group : {1, 2}) {  // contiguous groups of a power of two: the same tree
    if (technique() == "fsdp" && test_world().size() % group == 0) {
      chosen.shard_group = group;
      expect_as_defined(technique(), chosen, {}, kClip);
    }
  }
}

/// Three steps after which copies of parameters are equal; then one rank's is changed and must be named, alone or, where only
/// two ranks hold a copy, together with the other.
void expect_equal_replicas(const std::string& technique, const parallel::StrategyOptions& options,
                           const std::vector<int>& odd_ranks, std::int64_t element) {
  TinyRun run(technique, options, {}, kClip);
  for (std::int64_t step = 0; step < 3; ++step) {
    run.step(step);
    const auto found = train::compare_replicas(run.strategy(), run.communicator(), step);
    EXPECT_TRUE(found.compared);
    EXPECT_TRUE(found.odd_ranks.empty()) << "after step " << step;
  }
  if (test_world().rank() == test_world().size() - 1) {
    run.strategy().flip_bit(element);
  }
  EXPECT_EQ(train::compare_replicas(run.strategy(), run.communicator(), 3).odd_ranks, odd_ranks);
}

TEST_P(OrderedTraining, CopiesOnSeveralRanksAreEqualWhereThereAreAny) {
  const int size = test_world().size();
  const bool sharded = technique() == "zero3" || technique() == "fsdp";
  if (sharded || size == 1) {
    TinyRun run(technique(), options(), {}, kClip);
    run.step(0);
    const auto found = train::compare_replicas(run.strategy(), run.communicator(), 0);
    EXPECT_FALSE(found.compared) << "every part is held once";
  } else {
    expect_equal_replicas(technique(), options(), size == 2 ? std::vector<int>{0, 1} : std::vector<int>{size - 1}, 0);
  }
  if (sharded && size > 1) {
    auto chosen = options();
    chosen.persistence_threshold = kHidden + 1;  // both biases stay whole, at the end of what rests on a rank
    // The matrices come in one group, since all of the model is the root unit.
    const std::int64_t matrices = (80 + 96 + 16 * size - 1) / (16 * size) * 16;  // 65 and 91 elements, from multiples of 16
    expect_equal_replicas(technique(), chosen, size == 2 ? std::vector<int>{0, 1} : std::vector<int>{size - 1}, matrices);
  }
  if (technique() == "fsdp" && size == 4) {
    auto chosen = options();
    chosen.shard_group = 2;
    expect_equal_replicas(technique(), chosen, {1, 3}, 0);
  }
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<const char*, bool>>& info) {
  return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_no_sync" : "_sync");
}

INSTANTIATE_TEST_SUITE_P(Techniques, OrderedTraining,
                         ::testing::Combine(::testing::Values("ddp", "zero1", "zero2", "zero3", "fsdp"), ::testing::Bool()),
                         name_of_case);

}  // namespace
}  // namespace shardmark::testing
