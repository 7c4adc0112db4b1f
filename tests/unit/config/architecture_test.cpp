// config.json of a checkpoint: both spellings, defaults, and what is refused.

#include "config/architecture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/config_folder.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::config {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::origin_of;
using testing::TemporaryFolder;
using testing::write_file;

const std::string kFixture = SM_TEST_SOURCE_DIR "/tests/fixtures/tiny-llama/";

json fixture(const std::string& file) {
  return json::parse(testing::read_file(kFixture + file));
}

struct Read {
  explicit Read(const json& entries) {
    TemporaryFolder folder;
    write_file(folder.path() / "config.json", entries.dump());
    for (const auto& key : read_architecture((folder.path() / "config.json").string(), problems)) {
      keys[key.name] = key.value;
    }
  }
  Problems problems;
  std::map<std::string, std::string> keys;
};

TEST(Architecture, BothSpellingsSayTheSame) {
  const Read older(fixture("config.json"));
  const Read newer(fixture("config.other_style.json"));
  EXPECT_THAT(older.problems, IsEmpty());
  EXPECT_THAT(newer.problems, IsEmpty());
  EXPECT_EQ(older.keys, newer.keys);
  EXPECT_EQ(older.keys.at("model.hidden_size"), "64");
  EXPECT_EQ(older.keys.at("model.rope_theta"), "500000.0");
  EXPECT_EQ(older.keys.at("model.rope_scaling.rope_type"), "\"llama3\"");
  EXPECT_EQ(older.keys.at("model.rope_scaling.original_max_position_embeddings"), "64");
  EXPECT_EQ(older.keys.at("model.tie_word_embeddings"), "true");
}

TEST(Architecture, AbsentEntriesHaveThePublicDefaults) {
  auto entries = fixture("config.json");
  for (const auto* name :
       {"num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings", "rope_theta", "rope_scaling", "hidden_act"}) {
    entries.erase(name);
  }
  const Read read(entries);
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_EQ(read.keys.at("model.num_key_value_heads"), "0");
  EXPECT_EQ(read.keys.at("model.rms_norm_eps"), "1e-06");
  EXPECT_EQ(read.keys.at("model.rope_theta"), "10000.0");
  EXPECT_EQ(read.keys.at("model.tie_word_embeddings"), "false");
  EXPECT_FALSE(read.keys.contains("model.rope_scaling.rope_type"));
}

TEST(Architecture, WhatIsNotBuiltIsRefused) {
  const std::vector<std::pair<json, std::string>> changes{
      {{{"model_type", "mistral"}}, "model_type = \"mistral\""},
      {{{"hidden_act", "gelu"}}, "hidden_act = \"gelu\": this program builds \"silu\" alone"},
      {{{"attention_bias", true}}, "attention_bias = true"},
      {{{"mlp_bias", true}}, "mlp_bias = true"},
      {{{"attention_dropout", 0.1}}, "attention_dropout = 0.1"},
      {{{"sliding_window", 8}}, "sliding_window = 8: not known here"},
      {{{"quantization_config", {{"bits", 4}}}}, "quantization_config"},
      {{{"hidden_size", nullptr}}, "hidden_size = missing"},
      {{{"hidden_size", 64.5}}, "hidden_size = 64.5: a whole number"},
      {{{"num_hidden_layers", 0}}, "num_hidden_layers = 0"},
      {{{"rms_norm_eps", "small"}}, "rms_norm_eps = \"small\": a number"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings = 1: true or false"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}}, "rope_type = \"yarn\": default and llama3"},
      {{{"rope_scaling", 8}}, "rope_scaling = 8: an object"},
      {{{"rope_scaling", {{"rope_type", "llama3"}}}}, "rope_scaling.factor = missing"},
      {{{"rope_scaling", {{"rope_type", "default"}, {"factor", 2}}}}, "rope_scaling.factor = 2: rope_type \"default\""},
      {{{"rope_parameters", {{"rope_theta", 1e4}}}}, "rope_parameters stands beside"}};
  for (const auto& [change, said] : changes) {
    auto entries = fixture("config.json");
    entries.update(change);
    const Read read(entries);
    EXPECT_THAT(read.keys, IsEmpty()) << change;
    ASSERT_FALSE(read.problems.empty()) << change;
    EXPECT_THAT(read.problems.front(), HasSubstr(said));
    EXPECT_THAT(read.problems.front(), HasSubstr("config.json: "));
  }
}

TEST(Architecture, OfACheckpointBeatsFilesAndContradictsTheCommandLine) {
  testing::ConfigFolder folder;
  folder.write_preset(
      "definition_version = 1\ndescription = \"a base\"\n[workload]\nname = \"lm\"\n[model]\nhidden_size = 8\n");
  folder.write_case("preset = \"base\"\n");
  const std::string checkpoint = "model.checkpoint=" + kFixture;
  const auto config = load_config(folder.case_request({checkpoint}));
  EXPECT_EQ(config.model.hidden_size, 64);
  EXPECT_EQ(config.model.rope_scaling.factor, 32);
  EXPECT_THAT(origin_of(config, "model.hidden_size"), HasSubstr("config.json"));
  EXPECT_EQ(load_config(folder.case_request({checkpoint, "model.hidden_size=64"})).model.hidden_size, 64);
  try {
    static_cast<void>(load_config(folder.case_request({checkpoint, "model.hidden_size=65"})));
    FAIL() << "a contradiction passed";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--set model.hidden_size = 65"));
    EXPECT_THAT(error.what(), HasSubstr("says 64"));
  }
}

}  // namespace
}  // namespace shardmark::config
