// Configurations: precedence, errors, round trip, batches.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"

namespace shardmark::config {
namespace {

const std::string kPresets = std::string(SM_TEST_SOURCE_DIR) + "/workloads/presets";

RunConfig load(std::vector<std::string> sets, const std::string& preset = "mlp") {
  LoadRequest request;
  request.preset_or_file = preset;
  request.sets = std::move(sets);
  request.preset_dir = kPresets;
  return load_config(request);
}

std::vector<std::string> problems_of(std::vector<std::string> sets) {
  try {
    static_cast<void>(load(std::move(sets)));
  } catch (const base::ConfigError& error) {
    return error.problems();
  }
  return {};
}

TEST(Config, EveryPresetLoads) {
  for (const auto& name : preset_names(kPresets)) {
    EXPECT_NO_THROW(static_cast<void>(load({}, name))) << name;
    EXPECT_FALSE(preset_description(kPresets, name).empty()) << name;
  }
}

TEST(Config, LaterBeatsEarlierAndOriginsSayWho) {
  const auto config = load({"optimizer.lr=0.5", "optimizer.name=sgd", "data.path=some/file.h5"});
  EXPECT_EQ(config.optimizer.lr, 0.5);
  EXPECT_EQ(config.optimizer.name, "sgd");
  EXPECT_EQ(config.data.path, "some/file.h5");
  for (const auto& origin : config.origins) {
    if (origin.key == "optimizer.lr") {
      EXPECT_EQ(origin.origin, "--set");
    }
    if (origin.key == "model.width") {
      EXPECT_EQ(origin.origin, "preset mlp");
    }
    if (origin.key == "optimizer.eps") {
      EXPECT_EQ(origin.origin, "default");
    }
  }
}

TEST(Config, AllProblemsAtOnce) {
  const auto problems = problems_of({"optimiser.lr=1", "measure.steps=2.5", "model.dropout=1.5", "numerics.reduction=slow", "broken"});
  EXPECT_EQ(problems.size(), 5U);
  EXPECT_NE(problems.at(0).find("optimizer.lr"), std::string::npos) << "did you mean";
}

TEST(Config, WrongTypesAndCombinations) {
  EXPECT_EQ(problems_of({"technique.overlap=1"}).size(), 1U);
  EXPECT_EQ(problems_of({"optimizer.betas=[0.9]"}).size(), 1U);
  EXPECT_EQ(problems_of({"optimizer.lr=0"}).size(), 1U);
  EXPECT_EQ(problems_of({"schedule.name=step"}).size(), 1U);
  EXPECT_EQ(problems_of({"schedule.total_steps=5", "schedule.warmup_steps=6"}).size(), 1U);
  EXPECT_EQ(problems_of({"data.seed=1", "data.seed=2"}).size(), 1U);
  EXPECT_THROW(static_cast<void>(load({}, "mpl")), base::ConfigError);
}

TEST(Config, HashSeesWhatMattersOnly) {
  const auto hash = config_hash(load({}));
  EXPECT_EQ(hash, config_hash(load({"output.path=elsewhere.h5", "comm.deadline_s=5"})));
  for (const auto& key : {"optimizer.lr=0.002", "data.seed=43", "technique.overlap=false", "model.dropout=0.1"}) {
    EXPECT_NE(hash, config_hash(load({key}))) << key;
  }
}

TEST(Config, EveryKeyIsListedWithItsMeaning) {
  const auto listing = list_keys();
  for (const auto& key : keys()) {
    EXPECT_NE(listing.find(key.name), std::string::npos);
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
}

TEST(Batch, WorkPerRankStaysTheRecipes) {
  const auto plan = resolve_batch(load({"data.micro_batch=5", "data.accumulation=2"}), 3);
  EXPECT_EQ(plan.global_batch, 30);
  EXPECT_EQ(plan.micro_batch, 5);
  EXPECT_EQ(plan.accumulation, 2);
}

TEST(Batch, GlobalBatchIsCut) {
  const auto plan = resolve_batch(load({"data.global_batch=36", "data.micro_batch=2"}), 3);
  EXPECT_EQ(plan.accumulation, 6);
  const auto share = resolve_batch(load({"data.global_batch=36", "data.micro_batch=0", "data.accumulation=3"}), 4);
  EXPECT_EQ(share.micro_batch, 3);
  EXPECT_EQ(share.accumulation, 3);
}

TEST(Batch, IndivisibleNamesTheNearest) {
  try {
    static_cast<void>(resolve_batch(load({"data.global_batch=37", "data.micro_batch=0"}), 3));
    FAIL() << "37 rows do not divide over 3 ranks";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("36 or 39"), std::string::npos);
  }
  EXPECT_THROW(static_cast<void>(resolve_batch(load({"data.global_batch=36", "data.accumulation=2"}), 3)), base::ConfigError);
  EXPECT_THROW(static_cast<void>(resolve_batch(load({"technique.name=single"}), 2)), base::ConfigError);
}

}  // namespace
}  // namespace shardmark::config
