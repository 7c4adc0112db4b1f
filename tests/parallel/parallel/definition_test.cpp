// Training under `ordered` equals the definition bit for bit, however buckets, overlap and accumulation are set.

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/parallel/parallel/definition.hpp"

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

TEST_P(OrderedTraining, ReplicasAreEqual) {
  TinyRun run(technique(), options(), {}, kClip);
  std::set<std::uint64_t> hashes_over_time;
  for (std::int64_t step = 0; step < 3; ++step) {
    run.step(step);
    const parallel::Replica mine = run.strategy().replica();
    std::map<std::int64_t, std::set<std::uint64_t>> hashes;
    for (const auto& bytes : test_world().all_gather(std::as_bytes(std::span(&mine, 1)))) {
      parallel::Replica theirs;
      std::memcpy(&theirs, bytes.data(), sizeof theirs);
      hashes[theirs.key].insert(theirs.hash);
    }
    for (const auto& [key, different] : hashes) {
      EXPECT_EQ(different.size(), 1U) << "after step " << step << ", parts of rank " << key;
    }
    const bool sharded = technique() == "zero3" || technique() == "fsdp";
    EXPECT_EQ(hashes.size(), sharded ? static_cast<std::size_t>(test_world().size()) : 1U);
    hashes_over_time.insert(mine.hash);
  }
  EXPECT_EQ(hashes_over_time.size(), 3U) << "a hash that does not see the parameters change";
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<const char*, bool>>& info) {
  return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_no_sync" : "_sync");
}

INSTANTIATE_TEST_SUITE_P(Techniques, OrderedTraining,
                         ::testing::Combine(::testing::Values("ddp", "zero1", "zero2", "zero3", "fsdp"), ::testing::Bool()),
                         name_of_case);

}  // namespace
}  // namespace shardmark::testing
