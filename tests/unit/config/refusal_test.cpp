// What a configuration is refused for, and whether the message names key, value, place and remedy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/keys.hpp"
#include "tests/support/config_folder.hpp"

namespace shardmark::config {
namespace {

using ::testing::AllOf;
using testing::ConfigFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::problems_of;
using testing::problems_of_sets;
using ::testing::UnorderedElementsAre;

struct BadSet {
  std::string set;
  std::vector<std::string> parts;  // of its one message
};

class RefusedSet : public ::testing::TestWithParam<BadSet> {};

TEST_P(RefusedSet, IsNamedWithWhatIsAccepted) {
  const auto problems = problems_of_sets({GetParam().set});
  ASSERT_EQ(problems.size(), 1U) << base::ConfigError(problems).what();
  EXPECT_THAT(problems.front(), HasSubstr("--set"));
  for (const auto& part : GetParam().parts) {
    EXPECT_THAT(problems.front(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    WrongType, RefusedSet,
    ::testing::Values(BadSet{"technique.overlap=1", {"technique.overlap = 1 is a whole number", "accepted: true or false"}},
                      BadSet{"measure.steps=2.5", {"measure.steps = 2.5 is a number", "accepted: whole number from 1"}},
                      BadSet{"measure.steps=many", {"\"many\" is a string", "whole number"}},
                      BadSet{"measure.steps=", {"\"\" is a string", "whole number"}},
                      BadSet{"measure.steps=true", {"is true or false", "whole number"}},
                      BadSet{"measure.steps=99999999999999999999", {"not TOML", "64 bits"}},
                      BadSet{"measure.steps=1\nx = 2", {"\"1\\u000ax = 2\" is a string", "accepted: whole number"}},
                      BadSet{"optimizer.lr=\"0.1\"", {"\"0.1\" is a string", "number above 0"}},
                      BadSet{"optimizer.lr=1979-05-27", {"is a date or time", "number above 0"}},
                      BadSet{"optimizer.lr={a=1}", {"is a section", "number above 0"}},
                      BadSet{"optimizer.betas=0.9", {"0.9 is a number", "list of two numbers from 0 to below 1"}},
                      BadSet{"optimizer.betas=[0.9, 0.999", {"not TOML", "list of two numbers"}},
                      BadSet{"model.layers=[1.5]", {"holds a number", "whole number or list of such from 0"}},
                      BadSet{"model.layers=wide", {"\"wide\" is a string", "whole number or list of such"}},
                      BadSet{"data.path=\"open", {"not TOML", "accepted: string"}}));

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, RefusedSet,
    ::testing::Values(BadSet{"optimizer.lr=0", {"optimizer.lr = 0 is out of range", "number above 0"}},
                      BadSet{"optimizer.lr=nan", {"nan is out of range"}}, BadSet{"optimizer.lr=inf", {"inf is out of range"}},
                      BadSet{"optimizer.lr=-1e-3", {"is out of range"}},
                      BadSet{"optimizer.betas=[0.9, 1.0]", {"is out of range", "below 1"}},
                      BadSet{"optimizer.betas=[-0.1, 0.9]", {"is out of range", "from 0"}},
                      BadSet{"optimizer.betas=[0.9]", {"has 1 value(s)", "list of two"}},
                      BadSet{"optimizer.betas=[0.9, 0.99, 0.999]", {"has 3 value(s)"}},
                      BadSet{"optimizer.betas=[0.9, \"x\"]", {"holds a string"}},
                      BadSet{"optimizer.betas=[0.9, 9223372036854775807]", {"is out of range"}},
                      BadSet{"model.layers=[]", {"[] has no value", "whole number or list of such"}},
                      BadSet{"model.layers=[8, -1]", {"is out of range", "whole number or list of such"}},
                      BadSet{"technique.bucket_mb=-1", {"technique.bucket_mb = -1", "number from 0"}},
                      BadSet{"technique.bucket_mb=9223372036854775807", {"is out of range"}},
                      BadSet{"model.dropout=1.0", {"model.dropout = 1.0", "from 0 to below 1"}},
                      BadSet{"data.global_batch=-6", {"whole number from 0 to 1_000_000_000_000"}},
                      BadSet{"data.seed=-1", {"whole number from 0"}}, BadSet{"measure.blocks=0", {"whole number from 1"}},
                      BadSet{"comm.deadline_s=0", {"number above 0"}}, BadSet{"comm.deadline_s=inf", {"is out of range"}},
                      BadSet{"data.path=\"a\\u0000b\"", {"zero byte"}}, BadSet{"data.path=\xff", {"data.path", "not UTF-8"}}));

INSTANTIATE_TEST_SUITE_P(NotAccepted, RefusedSet,
                         ::testing::Values(BadSet{"technique.name=zero9",
                                                  {"technique.name = \"zero9\"", "accepted: ddp, single, zero1"}},
                                           BadSet{"technique.reshard_after_forward=1", {"true, false, whole number from 2"}},
                                           BadSet{"technique.shard_group=rack", {"node, whole number from 0"}},
                                           BadSet{"numerics.reduction=slow", {"accepted: fast, ordered"}},
                                           BadSet{"precision.compute=fp16", {"accepted: fp32, bf16"}},
                                           BadSet{"comm.backend=gloo", {"accepted: auto, nccl, mpi"}},
                                           BadSet{"optimizer.name=\"\"", {"accepted: sgd, adam, adamw"}}));

INSTANTIATE_TEST_SUITE_P(UnknownKey, RefusedSet,
                         ::testing::Values(BadSet{"optimiser.lr=1", {"unknown key optimiser.lr", "did you mean optimizer.lr?"}},
                                           BadSet{"lr=1", {"unknown key lr", "did you mean optimizer.lr?"}},
                                           BadSet{"seed=1", {"did you mean data.seed or numerics.seed?"}},
                                           BadSet{"qqqqqqqqqqqq=1", {"unknown key qqqqqqqqqqqq;", "list --keys"}},
                                           BadSet{"model.frog.rank=16", {"unknown key model.frog.rank"}},
                                           BadSet{"checkpoint.dir=x", {"unknown key checkpoint.dir"}},
                                           BadSet{"measure.phases=true", {"unknown key measure.phases"}},
                                           BadSet{"broken", {"broken", "key=value"}}, BadSet{"=1", {"key=value"}}));

TEST(Refusal, CombinationsThatCannotWork) {
  EXPECT_THAT(problems_of_sets({"schedule.name=linear", "schedule.total_steps=5", "schedule.warmup_steps=6"}),
              ElementsAre(AllOf(HasSubstr("schedule.warmup_steps = 6"), HasSubstr("schedule.total_steps = 5"))));
  EXPECT_THAT(problems_of_sets({"schedule.total_steps=6", "schedule.warmup_steps=6"}), IsEmpty());
  EXPECT_THAT(problems_of_sets({"schedule.name=step"}), ElementsAre(HasSubstr("schedule.step_every of at least 1")));
  EXPECT_THAT(problems_of_sets({"schedule.name=step", "schedule.step_every=3"}), IsEmpty());
  EXPECT_THAT(problems_of_sets({"data.global_batch=37", "data.micro_batch=4", "data.accumulation=3"}),
              ElementsAre(AllOf(HasSubstr("data.global_batch = 37"), HasSubstr("36 or 48"))));
  EXPECT_THAT(problems_of_sets({"data.global_batch=37", "data.micro_batch=64"}), ElementsAre(HasSubstr("are: 64;")));
  EXPECT_THAT(problems_of_sets({"data.eval_path=held-out.h5"}), IsEmpty());
  EXPECT_THAT(problems_of_sets({"evaluate.every=5"}), ElementsAre(HasSubstr("name them by data.eval_path")));
  EXPECT_THAT(problems_of_sets({"evaluate.target=0.7"}), ElementsAre(HasSubstr("name them by data.eval_path")));
  EXPECT_THAT(problems_of_sets({"evaluate.every=5", "evaluate.target=0.7", "data.eval_path=held-out.h5"}), IsEmpty());
}

TEST(Refusal, NothingOnlyFollowsFromAnotherProblem) {
  EXPECT_THAT(problems_of_sets({"schedule.name=step", "schedule.step_every=-1"}),
              ElementsAre(HasSubstr("schedule.step_every = -1")));
  EXPECT_THAT(problems_of_sets({"workload.name=3.5\"", "measure.steps=0"}), ElementsAre(HasSubstr("measure.steps")));
  ConfigFolder folder;
  EXPECT_THAT(problems_of(folder.case_request()), ElementsAre(HasSubstr("does not exist")));
}

TEST(Refusal, TheSameKeyTwiceOnTheCommandLine) {
  EXPECT_THAT(problems_of_sets({"data.seed=1", "data.seed=2"}), ElementsAre(HasSubstr("data.seed is given twice")));
  auto request = testing::preset_request({"technique.name=ddp", "output.path=a.h5"});
  request.technique = "single";
  request.output_path = "b.h5";
  EXPECT_THAT(problems_of(request), ElementsAre(AllOf(HasSubstr("--technique: technique.name"), HasSubstr("by --set")),
                                                AllOf(HasSubstr("-o: output.path"), HasSubstr("by --set"))));
  request = testing::preset_request({});
  request.technique = "dpp";
  EXPECT_THAT(problems_of(request),
              ElementsAre(AllOf(HasSubstr("--technique: "), HasSubstr("\"dpp\""), HasSubstr("ddp, single"))));
}

TEST(Refusal, EveryProblemOfEveryLayerAtOnce) {
  ConfigFolder folder;
  folder.write_preset(
      "definition_version = 1\ndescription = \"\"\n[workload]\nname = \"mlp\"\n[model]\nwidth = \"wide\"\nwidht = 3\n");
  folder.write_case(
      "preset = \"base\"\n"
      "[optimiser]\nlr = 1\n"
      "[schedule]\nname = \"step\"\n"
      "[measure]\nsteps = 0\n");
  auto request =
      folder.case_request({"numerics.reduction=slow", "broken", "schedule.total_steps=1", "schedule.warmup_steps=2"});
  request.technique = "zero9";
  const auto problems = problems_of(request);
  EXPECT_THAT(problems,
              UnorderedElementsAre(HasSubstr(folder.preset_file() + ":6: model.width = \"wide\" is a string"),
                                   HasSubstr(folder.preset_file() + ":7: unknown key model.widht (did you mean model.width?)"),
                                   HasSubstr(folder.case_file() + ":3: unknown key optimiser.lr (did you mean optimizer.lr?)"),
                                   HasSubstr(folder.case_file() + ":7: measure.steps = 0 is out of range"),
                                   HasSubstr("--set: numerics.reduction = \"slow\""), HasSubstr("--set broken"),
                                   HasSubstr("--technique: "), HasSubstr("schedule.warmup_steps = 2 exceeds"),
                                   HasSubstr("schedule.step_every of at least 1")));
  const base::ConfigError error(problems);
  EXPECT_EQ(error.code(), base::ExitCode::usage);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("9 problems"), HasSubstr("zero9"), HasSubstr("model.widht")));
}

TEST(Refusal, SyntaxErrorsSayWhereAndHideNothingElse) {
  ConfigFolder folder;
  folder.write_case("[workload]\nname = \"mlp\"\n[model]\nwidth 3\n");
  EXPECT_THAT(problems_of(folder.case_request({"measure.steps=0"})),
              ElementsAre(HasSubstr(folder.case_file() + ":4:7: not TOML: "), HasSubstr("measure.steps")));
  folder.write_case("[model]\nwidth = 3\nwidth = 4\n");
  EXPECT_THAT(problems_of(folder.case_request()), ElementsAre(AllOf(HasSubstr(":3:"), HasSubstr("redefine"))));
  folder.write_case("[workload]\nname = \"\xff\"\n");
  EXPECT_THAT(problems_of(folder.case_request()), ElementsAre(AllOf(HasSubstr(":2:"), HasSubstr("utf-8"))));
}

TEST(Refusal, WhatIsNoSection) {
  ConfigFolder folder;
  folder.write_case(
      "data = 3\n"
      "frog = 1\n"
      "\"data.seed\" = 4\n"
      "definition_version = 0\n"
      "description = 1\n"
      "[lora]\n"
      "[model.frog]\n"
      "[model.width]\n"
      "[[measure]]\n"
      "[workload]\nname = \"mlp\"\n");
  EXPECT_THAT(problems_of(folder.case_request()),
              UnorderedElementsAre(HasSubstr(":1: data is a whole number; accepted: a section [data]"),
                                   HasSubstr(":2: unknown key frog"), HasSubstr(":3: \"data.seed\" in quotes"),
                                   HasSubstr(":4: definition_version = 0 is out of range"), HasSubstr(":5: description is"),
                                   HasSubstr(":6: unknown section [lora]"), HasSubstr(":7: unknown section [model.frog]"),
                                   AllOf(HasSubstr(":8: model.width"), HasSubstr("is a section")),
                                   HasSubstr("measure is a list; accepted: a section [measure]")));
}

TEST(Refusal, PresetsThatDoNotExistOrAreNotWhole) {
  EXPECT_THAT(problems_of(testing::preset_request({}, "mpl")),
              ElementsAre(AllOf(HasSubstr("no preset \"mpl\""), HasSubstr("did you mean \"mlp\"?"), HasSubstr("mlp-digits"))));
  EXPECT_THAT(problems_of(testing::preset_request({}, "../presets/mlp")), ElementsAre(HasSubstr("no preset")));
  EXPECT_THAT(problems_of(testing::preset_request({}, "mlp.toml")),
              ElementsAre(AllOf(HasSubstr("mlp.toml does not exist"), HasSubstr("the preset is called mlp"))));
  EXPECT_THAT(problems_of(testing::preset_request({}, "other.toml")), ElementsAre(Not(HasSubstr("the preset is called"))));

  ConfigFolder folder;
  folder.write_preset("preset = \"base\"\n[workload]\nname = \"mlp\"\n");
  EXPECT_THAT(
      problems_of(folder.request("base")),
      ElementsAre(HasSubstr("needs definition_version"), HasSubstr("needs description"), HasSubstr("cannot build on another")));
  folder.write_case("preset = \"bose\"\n[measure]\nsteps = 0\n");
  EXPECT_THAT(
      problems_of(folder.case_request()),
      ElementsAre(AllOf(HasSubstr("case.toml:1: no preset \"bose\""), HasSubstr("\"base\"")), HasSubstr("measure.steps")));
  folder.write_case("preset = 3\n");
  EXPECT_THAT(problems_of(folder.case_request()), ElementsAre(HasSubstr("preset is a whole number")));
  folder.write_case("[measure]\nsteps = 3\n");
  EXPECT_THAT(problems_of(folder.case_request()), ElementsAre(HasSubstr("workload.name is missing")));
}

}  // namespace
}  // namespace shardmark::config
