#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "model/auroc.hpp"
#include "tests/support/bound_workload.hpp"
#include "tests/support/ratings_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::workloads {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::make_bound;
using testing::TemporaryFolder;

config::RunConfig recipe() {
  config::RunConfig config;
  config.workload.name = "two-tower";
  config.model.width = 128;
  config.model.layers = {128, 64};
  return config;
}

config::RunConfig tiny() {
  config::RunConfig config = recipe();
  config.model.users = 50;
  config.model.movies = 70;
  config.model.width = 16;
  config.model.layers = {16, 8};
  return config;
}

TEST(TwoTower, HasTheParametersOfTheRecipe) {
  const auto workload = make_workload(recipe());
  EXPECT_EQ(workload->parameters().numel(), 128 * (854 + 13'012) + 49'536);
  EXPECT_EQ(make_workload(tiny())->parameters().numel(), 2'736);
  config::RunConfig large = recipe();
  large.model.users = 1'000'000;
  large.model.movies = 100'000;
  EXPECT_EQ(make_workload(large)->parameters().numel(), 140'800'000 + 49'536) << "nothing of it is allocated";
  std::vector<std::string> names;
  for (const auto& parameter : workload->parameters().parameters()) {
    names.push_back(parameter.name);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"two_tower.ebc.embedding_bags.t_userId.weight", "two_tower.ebc.embedding_bags.t_movieId.weight",
                          "two_tower.query_proj._mlp.0._linear.weight", "two_tower.query_proj._mlp.1._linear.bias",
                          "two_tower.candidate_proj._mlp.1._linear.weight"}));
  EXPECT_EQ(names.size(), 10U);
}

TEST(TwoTower, CountsFlops) {
  config::RunConfig config = recipe();
  EXPECT_EQ(make_workload(config)->flops(1).model, 3 * 98'432);
  EXPECT_EQ(make_workload(config)->flops(7).hardware, 7 * 3 * 98'432);
  config.model.activation_checkpointing = true;
  EXPECT_EQ(make_workload(config)->flops(1).hardware, 3 * 98'432 + 2 * 2 * (128 * 128 + 128 * 64));
}

TEST(TwoTower, AFillerTouchesNeitherTargetsNorLossNorGradients) {
  const auto run = [](const std::vector<std::int64_t>& rows) {
    const auto workload = make_bound(tiny());
    EXPECT_EQ(workload->targets(rows), 2);
    EXPECT_EQ(workload->work(rows).samples, 2);
    const torch::Tensor loss = workload->loss_sum(workload->load(rows, {}));
    loss.backward();
    const auto& table = workload->parameters().parameters().front();
    return std::pair(loss.item<double>(), table.value.grad().clone());
  };
  const auto [loss, gradient] = run({5, 9});
  const auto [filled_loss, filled_gradient] = run({5, -1, 9, -1});
  EXPECT_NEAR(filled_loss / loss, 1, 2e-6);
  EXPECT_TRUE(filled_gradient.allclose(gradient, 2e-5, 1e-8));
}

class TwoTowerFiles : public ::testing::Test {
 protected:
  config::RunConfig with_files() {
    testing::write_ratings(folder_.file("train.h5"), testing::some_ratings(30));
    testing::write_ratings(folder_.file("eval.h5"), testing::some_ratings(17));
    config::RunConfig config = tiny();
    config.model.users = config.model.movies = 0;
    config.data.path = folder_.file("train.h5");
    config.data.eval_path = folder_.file("eval.h5");
    return config;
  }
  TemporaryFolder folder_;
};

TEST_F(TwoTowerFiles, SizeTheTablesAndIdsAreTakenModulo) {
  config::RunConfig config = with_files();
  const auto workload = make_workload(config);
  EXPECT_EQ(workload->parameters().numel(), 16 * (5 + 30) + 2 * (16 * 16 + 16 + 16 * 8 + 8));
  const auto batch = workload->load(std::vector<std::int64_t>{3, 29}, {});
  EXPECT_EQ(batch.tensors[1][0].item<std::int64_t>(), 103 % 30);
  EXPECT_EQ(batch.tensors[1][1].item<std::int64_t>(), 129 % 30);
  config.model.users = 9;
  config.model.movies = 7;
  const auto other = make_workload(config);
  EXPECT_EQ(other->load(std::vector<std::int64_t>{3}, {}).tensors[1].item<std::int64_t>(), 103 % 7);
  config.model.users = 4;
  EXPECT_THROW(static_cast<void>(make_workload(config)), base::DataError) << "user 4 has no row";
}

TEST_F(TwoTowerFiles, QualityIsTheAreaOverAllScoresAtOnce) {
  const auto workload = make_bound(with_files());
  std::vector<std::int64_t> rows(17);
  std::iota(rows.begin(), rows.end(), 0);
  const torch::NoGradGuard no_grad;
  const auto whole = workload->evaluate(rows);
  auto scores = workload->evaluate(std::span(rows).first(4)).items;
  const auto rest = workload->evaluate(std::span(rows).subspan(4)).items;
  scores.insert(scores.end(), rest.begin(), rest.end());
  ASSERT_EQ(whole.items.size(), 17U);
  for (std::size_t i = 0; i < 17; ++i) {
    EXPECT_NEAR(whole.items[i], scores[i], 2e-6);
  }
  std::vector<float> labels;
  for (std::size_t row = 0; row < 17; ++row) {
    labels.push_back(row % 2 == 0 ? 0.0F : 1.0F);
  }
  EXPECT_EQ(workload->quality({0, 17, scores}), model::auroc(scores, labels));
  EXPECT_EQ(workload->quality_name(), "auroc");
}

TEST(TwoTower, ImpossibleShapesAreNamedTogether) {
  config::RunConfig config = tiny();
  config.model.width = 0;
  config.model.layers = {16, 0};
  try {
    static_cast<void>(make_workload(config));
    FAIL() << "was accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.width = 0"), HasSubstr("model.layers = [16, 0]")));
  }
}

}  // namespace
}  // namespace shardmark::workloads
