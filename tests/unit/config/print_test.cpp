// The table of keys and the texts and the hash made of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/print.hpp"
#include "tests/support/config_folder.hpp"

namespace shardmark::config {
namespace {

using testing::ConfigFolder;
using ::testing::HasSubstr;
using testing::load_preset;

/// Another value than the key's default that any key of its type accepts.
std::string other_value(const Key& key) {
  RunConfig probe;
  const Member member = key.member(probe);
  if (std::holds_alternative<WordOrNumber*>(member)) {
    return "7";
  }
  if (!key.accepted.empty()) {
    return key.accepted.back();
  }
  if (std::holds_alternative<bool*>(member)) {
    return key.default_text == "true" ? "false" : "true";
  }
  if (std::holds_alternative<std::string*>(member)) {
    return "other";
  }
  if (std::holds_alternative<std::int64_t*>(member)) {
    return "7";
  }
  if (std::holds_alternative<std::vector<std::int64_t>*>(member)) {
    return "[7, 5]";
  }
  if (std::holds_alternative<double*>(member)) {
    return "0.625";
  }
  // Shares, or whole numbers from 1 on.
  return key.list_length == 2 ? "[0.25, 0.375]" : "[1, 2, 1, 1]";
}

TEST(KeyTable, DefaultsAreAcceptedAndEveryKeyIsDocumented) {
  std::set<std::string> names;
  for (const auto& key : keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name << " stands twice";
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
  }
  const RunConfig config = load_preset({});
  for (const auto& origin : config.origins) {
    if (origin.origin == "default") {
      EXPECT_EQ(origin.value, find_key(origin.key)->default_text) << origin.key << ": the listed default is the effective one";
    }
  }
  EXPECT_EQ(find_key("data.nothing"), nullptr);
}

TEST(KeyTable, EveryMemberHasOneKeyOfItsOwn) {
  RunConfig config;
  std::set<const void*> members;
  for (const auto& key : keys()) {
    const void* address = std::visit([](auto* member) -> const void* { return member; }, key.member(config));
    EXPECT_TRUE(members.insert(address).second) << key.name << " fills another key's member";
  }
}

TEST(KeyTable, ListNamesEveryKeyWithDefaultAcceptedUnitAndMeaning) {
  const std::string listing = list_keys();
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(listing, '\n')), keys().size() + 1);
  for (const auto& key : keys()) {
    const auto start = listing.find("\n" + key.name + " ");
    ASSERT_NE(start, std::string::npos) << key.name;
    const std::string line = listing.substr(start + 1, listing.find('\n', start + 1) - start - 1);
    for (const auto& part : {key.default_text, accepted_text(key), key.unit, key.help}) {
      EXPECT_THAT(line, HasSubstr(part));
    }
  }
  EXPECT_THAT(listing, HasSubstr("number above 0 to 1e+06"));
}

TEST(Print, ReadsBackToTheSameConfiguration) {
  std::vector<std::string> sets;
  for (const auto& key : keys()) {
    sets.push_back(key.name + "=" + other_value(key));
  }
  // Awkward ones: a quote, a backslash, a tab, DEL and UTF-8; numbers without a short decimal form.
  std::ranges::replace(sets, std::string("data.path=other"), std::string("data.path=\"a\\\"\\\\\\t\\u007f\\u00e9 # [x]\""));
  std::ranges::replace(sets, std::string("optimizer.lr=0.625"), std::string("optimizer.lr=0.1000000000000000055"));
  std::ranges::replace(sets, std::string("optimizer.eps=0.625"), std::string("optimizer.eps=4.9e-324"));
  std::ranges::replace(sets, std::string("technique.bucket_mb=0.625"), std::string("technique.bucket_mb=-0.0"));
  // Bf16 states do not go with 8-bit ones, and seven everywhere would contradict each other.
  std::ranges::replace(sets, std::string("optimizer.name=adamw8bit"), std::string("optimizer.name=adam"));
  std::ranges::replace(sets, std::string("data.global_batch=7"), std::string("data.global_batch=49000000000"));
  const RunConfig config = load_preset(sets);
  EXPECT_EQ(config.data.path, "a\"\\\t\x7f\xc3\xa9 # [x]");

  ConfigFolder folder;
  for (const std::string& text : {to_toml(config), to_toml_with_origins(config)}) {
    folder.write_case(text);
    const RunConfig again = load_config(folder.case_request());
    ASSERT_EQ(again.origins.size(), config.origins.size());
    for (std::size_t i = 0; i < config.origins.size(); ++i) {
      EXPECT_EQ(again.origins[i].value, config.origins[i].value) << config.origins[i].key;
    }
    EXPECT_EQ(again.definition_version, config.definition_version);
    EXPECT_EQ(config_hash(again), config_hash(config));
    RunConfig renamed = again;
    renamed.preset = config.preset;
    EXPECT_EQ(to_toml(renamed), to_toml(config));
  }
}

TEST(Print, EveryPresetReadsBack) {
  ConfigFolder folder;
  for (const auto& name : preset_names(testing::kProjectPresets)) {
    const RunConfig config = load_preset({}, name);
    folder.write_case(to_toml(config));
    EXPECT_EQ(config_hash(load_config(folder.case_request())), config_hash(config)) << name;
  }
}

TEST(Print, EachLineSaysWhereItCameFrom) {
  const std::string text = to_toml_with_origins(load_preset({"optimizer.lr=0.5"}));
  EXPECT_THAT(text, HasSubstr("\n[optimizer]\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nlr = 0\\.5 +# --set\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\neps = 1e-08 +# default\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nwidth = 64 +# preset mlp\n"));
  EXPECT_THAT(text, HasSubstr("# preset mlp\ndefinition_version = 1\n"));
}

TEST(Print, ANameWithALineBreakStaysInItsComment) {
  RunConfig config = load_preset({});
  config.preset = "two\nlines";
  EXPECT_THAT(to_toml(config), HasSubstr("# preset two?lines\n"));
}

TEST(Hash, SeesEveryKeyThatMattersAndNoOther) {
  const std::set<std::string> unseen{"output.path",       "output.overwrite", "output.trace",         "output.gradients",
                                     "checkpoint.export", "comm.deadline_s",  "comm.init_deadline_s", "comm.allow_slow_path"};
  const std::uint64_t hash = config_hash(load_preset({}));
  for (const auto& key : keys()) {
    std::vector<std::string> sets{key.name + "=" + other_value(key)};
    if (key.name == "schedule.name") {
      sets.emplace_back("schedule.step_every=0");
      sets.front() = "schedule.name=linear";
    }
    std::uint64_t before = hash;
    if (key.name == "precision.parameters") {  // parameters may not be narrower than what computes with them
      sets.emplace_back("precision.compute=bf16");
      before = config_hash(load_preset({"precision.compute=bf16"}));
    }
    if (key.name.starts_with("evaluate.")) {  // needs held-out rows
      sets.emplace_back("data.eval_path=held-out.h5");
      before = config_hash(load_preset({"data.eval_path=held-out.h5"}));
    }
    const bool changed = config_hash(load_preset(sets)) != before;
    const bool one_value = key.accepted.size() == 1 || key.name == "model.variant" || key.name == "technique.name";
    if (!one_value) {
      EXPECT_EQ(changed, !unseen.contains(key.name)) << key.name;
    }
  }
  EXPECT_NE(hash, config_hash(load_preset({"technique.name=single"})));
  EXPECT_NE(hash, config_hash(load_preset({"model.variant=classification"})));
}

TEST(Hash, DependsOnValuesAndVersionNotOnTheNameOrTheLayer) {
  RunConfig config = load_preset({});
  const std::uint64_t hash = config_hash(config);
  EXPECT_EQ(hash, config_hash(load_preset({"optimizer.lr=1e-3", "technique.name=ddp"})));
  config.preset = "renamed";
  EXPECT_EQ(hash, config_hash(config));
  config.definition_version = 2;
  EXPECT_NE(hash, config_hash(config));
}

}  // namespace
}  // namespace shardmark::config
