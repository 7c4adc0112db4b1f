// Which layer wins, what each value's origin says, and where presets are found.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/environment.hpp"
#include "config/keys.hpp"
#include "config/print.hpp"
#include "tests/support/config_folder.hpp"

namespace shardmark::config {
namespace {

using testing::ConfigFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_preset;
using testing::origin_of;

constexpr const char* kPreset =
    "definition_version = 3\ndescription = \"a base\"\n"
    "[workload]\nname = \"mlp\"\n"
    "[model]\nwidth = 1\nlayers = 1\nclasses = 1\n";

TEST(Layers, LaterBeatsEarlier) {
  ConfigFolder folder;
  folder.write_preset(kPreset);
  folder.write_case("preset = \"base\"\ndescription = \"mine\"\n[model]\nlayers = 2\nclasses = 2\n[output]\npath = \"f.h5\"\n");
  auto request = folder.case_request({"model.classes=3", "numerics.reduction = \"ordered\" ", "data.path=some/file#1.h5"});
  request.technique = "single";
  request.output_path = "it's \"here\".h5";
  const RunConfig config = load_config(request);

  EXPECT_EQ(config.model.input_width, 0);
  EXPECT_EQ(config.model.width, 1);
  EXPECT_EQ(config.model.layers, std::vector<std::int64_t>{2});
  EXPECT_EQ(config.model.classes, 3);
  EXPECT_EQ(config.numerics.reduction, "ordered");
  EXPECT_EQ(config.data.path, "some/file#1.h5");
  EXPECT_EQ(config.technique.name, "single");
  EXPECT_EQ(config.output.path, "it's \"here\".h5");
  EXPECT_EQ(config.preset, "base");
  EXPECT_EQ(config.definition_version, 3);

  EXPECT_EQ(origin_of(config, "model.input_width"), "default");
  EXPECT_EQ(origin_of(config, "model.width"), "preset base");
  EXPECT_EQ(origin_of(config, "model.layers"), "file " + folder.case_file());
  EXPECT_EQ(origin_of(config, "model.classes"), "--set");
  EXPECT_EQ(origin_of(config, "technique.name"), "--technique");
  EXPECT_EQ(origin_of(config, "output.path"), "-o");
}

TEST(Layers, WholeNumbersAreOneOrAList) {
  ConfigFolder folder;
  folder.write_preset(kPreset);
  folder.write_case("preset = \"base\"\n[model]\nlayers = [128, 64]\n");
  EXPECT_EQ(load_config(folder.case_request()).model.layers, (std::vector<std::int64_t>{128, 64}));
  EXPECT_EQ(load_config(folder.case_request({"model.layers=[7]"})).model.layers, std::vector<std::int64_t>{7});
  EXPECT_EQ(load_config(folder.case_request({"model.layers=7"})).model.layers, std::vector<std::int64_t>{7});
}

TEST(Layers, AFileNeedsNoPreset) {
  ConfigFolder folder;
  folder.write_case("workload.name = \"mlp\"\n[optimizer]\nlr = 1\nbetas = [0, 0.5]\n");
  const RunConfig config = load_config(folder.case_request());
  EXPECT_EQ(config.preset, "case");
  EXPECT_EQ(config.definition_version, 1);
  EXPECT_EQ(config.optimizer.lr, 1.0) << "whole numbers are numbers";
  EXPECT_THAT(config.optimizer.betas, ElementsAre(0.0, 0.5));
}

TEST(Layers, DefaultsAreTheFirstAcceptedValues) {
  ConfigFolder folder;
  folder.write_case("workload.name = \"mlp\"\n");
  const RunConfig config = load_config(folder.case_request());
  EXPECT_EQ(config.technique.name, "ddp");
  EXPECT_EQ(config.technique.profile, "native");
  EXPECT_EQ(config.technique.accumulation, "sync");
  EXPECT_EQ(config.technique.unused_parameters, "error");
  EXPECT_TRUE(config.technique.overlap);
  EXPECT_EQ(config.precision.parameters + config.precision.compute + config.precision.reduce, "fp32fp32fp32");
  EXPECT_EQ(config.precision.state + config.precision.frozen, "fp32fp32");
  EXPECT_EQ(config.optimizer.name, "sgd");
  EXPECT_EQ(config.optimizer.decay, "all");
  EXPECT_THAT(config.optimizer.betas, ElementsAre(0.9, 0.999));
  EXPECT_EQ(config.optimizer.eps, 1e-8);
  EXPECT_EQ(config.schedule.name, "constant");
  EXPECT_EQ(config.schedule.gamma, 0.1);
  EXPECT_EQ(config.numerics.reduction, "fast");
  EXPECT_EQ(config.numerics.on_nonfinite, "fail");
  EXPECT_EQ(config.numerics.seed, 42);
  EXPECT_EQ(config.data.seed, 42);
  EXPECT_TRUE(config.data.shuffle);
  EXPECT_EQ(config.comm.backend, "auto");
  EXPECT_EQ(config.comm.deadline_s, 600);
  EXPECT_EQ(config.comm.init_deadline_s, 600);
  EXPECT_TRUE(config.comm.check);
  EXPECT_FALSE(config.comm.allow_slow_path);
  EXPECT_EQ(config.measure.warmup_steps, 3);
  EXPECT_EQ(config.measure.steps, 20);
  EXPECT_EQ(config.measure.blocks, 5);
  EXPECT_EQ(config.model.variant, "classification");
  EXPECT_FALSE(config.output.overwrite);
}

TEST(Layers, OriginsCoverEveryKeyInOrder) {
  const RunConfig config = load_preset({"optimizer.lr=5e-1"});
  ASSERT_EQ(config.origins.size(), keys().size());
  for (std::size_t i = 0; i < keys().size(); ++i) {
    EXPECT_EQ(config.origins[i].key, keys()[i].name);
    EXPECT_EQ(config.origins[i].value, value_text(keys()[i], config));
    EXPECT_FALSE(config.origins[i].origin.empty());
  }
}

TEST(Layers, AGlobalBatchDropsThePresetsAccumulationOnly) {
  ConfigFolder folder;
  folder.write_preset(std::string(kPreset) + "[data]\nmicro_batch = 2\naccumulation = 4\n");
  const RunConfig own = load_config(folder.request("base"));
  EXPECT_EQ(own.data.accumulation, 4);
  EXPECT_EQ(origin_of(own, "data.accumulation"), "preset base");

  const RunConfig dropped = load_config(folder.request("base", {"data.global_batch=12"}));
  EXPECT_EQ(dropped.data.accumulation, 0);
  EXPECT_THAT(origin_of(dropped, "data.accumulation"), HasSubstr("4 of preset base is dropped"));

  EXPECT_EQ(load_config(folder.request("base", {"data.global_batch=0"})).data.accumulation, 4);
  EXPECT_EQ(load_config(folder.request("base", {"data.global_batch=12", "data.accumulation=3"})).data.accumulation, 3);
  folder.write_case("preset = \"base\"\n[data]\nglobal_batch = 12\naccumulation = 6\n");
  EXPECT_EQ(load_config(folder.case_request()).data.accumulation, 6);
  folder.write_preset(std::string(kPreset) + "[data]\nmicro_batch = 2\nglobal_batch = 12\naccumulation = 6\n");
  EXPECT_EQ(load_config(folder.request("base")).data.accumulation, 0) << "set in the preset is set anywhere";
}

TEST(Presets, AllOfTheProjectLoadAndSayWhatTheyAre) {
  const auto names = preset_names(testing::kProjectPresets);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"mlp", "mlp-digits", "mlp-wide"}));
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (const auto& name : names) {
    const RunConfig config = load_preset({}, name);
    EXPECT_EQ(config.preset, name);
    EXPECT_EQ(config.data.path, "") << name << ": presets train on synthetic rows unless told otherwise";
    EXPECT_FALSE(preset_description(testing::kProjectPresets, name).empty()) << name;
  }
}

TEST(Presets, CarryTheRecipesNumbers) {
  const RunConfig mlp = load_preset({}, "mlp");
  EXPECT_EQ(mlp.model.variant, "regression");
  EXPECT_EQ(mlp.model.dropout, 0.2);
  EXPECT_EQ(mlp.data.micro_batch, 1);
  EXPECT_EQ(mlp.optimizer.name, "adam");
  EXPECT_EQ(mlp.optimizer.lr, 1e-3);
  EXPECT_EQ(mlp.optimizer.weight_decay, 0.0);
  const RunConfig wide = load_preset({}, "mlp-wide");
  EXPECT_EQ(wide.data.micro_batch, 64);
  EXPECT_EQ(wide.optimizer.lr, 1e-4);
  EXPECT_EQ(wide.optimizer.weight_decay, 0.01);

  const auto parameters = [](const ModelSection& m) {
    return (m.input_width + 1) * m.width + (m.layers.at(0) - 1) * (m.width + 1) * m.width + (m.width + 1) * m.classes;
  };
  EXPECT_EQ(parameters(mlp.model), 4'929);
  EXPECT_EQ(parameters(wide.model), 3'962'890);
}

TEST(Presets, CarryTheRecipesNumbersOfTransformerAndTowers) {
  const RunConfig transformer = load_preset({}, "transformer10m");
  EXPECT_EQ(transformer.technique.name, "fsdp");
  EXPECT_EQ(transformer.data.micro_batch, 32);
  EXPECT_EQ(transformer.optimizer.name, "adamw");
  EXPECT_EQ(transformer.optimizer.lr, 1e-3);
  EXPECT_EQ(transformer.optimizer.weight_decay, 0.01);
  const RunConfig towers = load_preset({}, "two-tower");
  EXPECT_EQ(towers.technique.name, "ddp");
  EXPECT_EQ(towers.data.micro_batch, 1024);
  EXPECT_EQ(towers.optimizer.name, "adam");
  EXPECT_EQ(towers.optimizer.lr, 1e-2);
  EXPECT_EQ(towers.model.layers, (std::vector<std::int64_t>{128, 64}));
  EXPECT_EQ(towers.model.users, 0) << "the data file sizes the tables";
  const RunConfig zipf = load_preset({}, "two-tower-zipf");
  EXPECT_EQ(zipf.model.users, 1'000'000);
  EXPECT_EQ(zipf.model.movies, 100'000);
}

TEST(Presets, AMissingFolderIsTheEnvironmentsFault) {
  EXPECT_THROW(static_cast<void>(preset_names("/nowhere/presets")), base::EnvironmentError);
  ConfigFolder folder;
  EXPECT_THROW(static_cast<void>(preset_description(folder.preset_file() + "/..", "base")), base::ConfigError);
}

TEST(Presets, AreFoundByVariableOrBesideTheProgram) {
  const auto before = base::environment_variable("SHARDMARK_PRESETS");
  unsetenv("SHARDMARK_PRESETS");
  EXPECT_TRUE(std::filesystem::equivalent(find_preset_dir(), testing::kProjectPresets));
  testing::TemporaryFolder other;
  setenv("SHARDMARK_PRESETS", other.path().c_str(), 1);
  EXPECT_EQ(find_preset_dir(), other.path().string());
  setenv("SHARDMARK_PRESETS", other.file("missing").c_str(), 1);
  EXPECT_THROW(static_cast<void>(find_preset_dir()), base::EnvironmentError);
  before ? setenv("SHARDMARK_PRESETS", before->c_str(), 1) : unsetenv("SHARDMARK_PRESETS");
}

}  // namespace
}  // namespace shardmark::config
