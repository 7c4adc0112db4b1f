#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "tests/support/bound_workload.hpp"

namespace shardmark::workloads {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_bound;

/// The recipe's numbers.
config::RunConfig recipe() {
  config::RunConfig config;
  config.workload.name = "transformer";
  config.model.input_width = 512;
  config.model.width = 512;
  config.model.blocks = 4;
  config.model.heads = 8;
  config.model.mlp_width = 2048;
  config.model.classes = 10;
  return config;
}

config::RunConfig tiny() {
  config::RunConfig config = recipe();
  config.model.width = 64;
  config.model.blocks = 2;
  config.model.heads = 4;
  config.model.mlp_width = 256;
  return config;
}

TEST(VectorTransformer, HasTheParametersOfTheRecipe) {
  const auto workload = make_workload(recipe());
  EXPECT_EQ(workload->parameters().numel(), 12'878'346);
  EXPECT_EQ(make_workload(tiny())->parameters().numel(), 133'578);
  config::RunConfig three = recipe();
  three.model.blocks = 3;
  EXPECT_EQ(make_workload(three)->parameters().numel(), 9'725'962);
  EXPECT_EQ(workload->parameters().units(), (std::vector<std::string>{"root", "layers.0", "layers.1", "layers.2", "layers.3"}));
  EXPECT_EQ(workload->num_rows(), 10'000);
  EXPECT_EQ(workload->num_eval_rows(), 0);
}

TEST(VectorTransformer, CountsTheArchitecturesFlopsAndThoseItExecutes) {
  config::RunConfig config = recipe();
  const auto of_one = make_workload(config)->flops(1);
  // Weights of all products: 2 FLOPs each forward, twice that backward.
  const double weights = 512.0 * 512 + 4 * (4 * 512.0 * 512 + 2 * 512.0 * 2048) + 512.0 * 10;
  EXPECT_EQ(of_one.model, 6 * weights);
  EXPECT_NEAR(of_one.model, 77e6, 0.5e6);
  EXPECT_EQ(of_one.hardware, 6 * (weights - 4 * 2 * 512.0 * 512)) << "queries and keys are not computed";
  config.model.activation_checkpointing = true;
  const auto again = make_workload(config)->flops(10);
  EXPECT_EQ(again.model, 10 * of_one.model);
  EXPECT_EQ(again.hardware, 10 * (of_one.hardware + 2 * 4 * (2 * 512.0 * 512 + 2 * 512.0 * 2048)));
}

TEST(VectorTransformer, AFillerTouchesNeitherTargetsNorLoss) {
  const auto workload = make_bound(tiny());
  const std::vector<std::int64_t> rows{5, 9};
  const std::vector<std::int64_t> filled{5, -1, 9, -1};
  EXPECT_EQ(workload->targets(filled), 2);
  EXPECT_EQ(workload->work(filled).samples, 2);
  const auto loss = [&](const auto& which) { return workload->loss_sum(workload->load(which, {})).template item<double>(); };
  // The same two terms, of products of another shape: the bound of equally right runs, 2e-6.
  EXPECT_NEAR(loss(filled) / loss(rows), 1, 2e-6);
}

TEST(VectorTransformer, SyntheticLabelsHaveNothingToDoWithFeatures) {
  // Over all rows each class comes up about a tenth of the time: five deviations of a count of 10,000 draws are 150. Labels of
  // a linear map would do so too; that a map cannot tell them is shown by no class having a mean of its own.
  const auto workload = make_workload(tiny());
  std::vector<std::int64_t> rows(10'000);
  std::iota(rows.begin(), rows.end(), 0);
  const auto batch = workload->load(rows, {});
  for (std::int64_t label = 0; label < 10; ++label) {
    const auto chosen = batch.tensors[1].eq(label);
    const double count = chosen.sum().item<double>();
    EXPECT_NEAR(count, 1000, 150) << label;
    // The squared length of a mean of `count` vectors of 512 N(0,1) numbers: 512 / count, deviation sqrt(1024) / count.
    const double length = batch.tensors[0].index({chosen}).mean(0).square().sum().item<double>();
    EXPECT_NEAR(length * count, 512, 5 * 32) << label;
  }
}

TEST(VectorTransformer, ImpossibleShapesAreNamedTogether) {
  config::RunConfig config = tiny();
  config.model.heads = 5;
  config.model.mlp_width = 0;
  config.model.dropout = 0.1;
  try {
    static_cast<void>(make_workload(config));
    FAIL() << "was accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.heads = 5 does not divide model.width = 64"),
                                    HasSubstr("model.mlp_width = 0"), HasSubstr("model.dropout = 0.1")));
  }
}

}  // namespace
}  // namespace shardmark::workloads
