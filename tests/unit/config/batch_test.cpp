// Batch arithmetic: every plan is checked against its definition, every refusal for remedies that really work.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/error.hpp"
#include "config/run_config.hpp"

namespace shardmark::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunConfig batch(std::int64_t global, std::int64_t micro, std::int64_t accumulation) {
  RunConfig config;
  config.technique.name = "ddp";
  config.data.global_batch = global;
  config.data.micro_batch = micro;
  config.data.accumulation = accumulation;
  return config;
}

std::string refusal(const RunConfig& config, int ranks) {
  try {
    static_cast<void>(resolve_batch(config, ranks));
    return "";
  } catch (const base::ConfigError& error) {
    return error.what();
  }
}

void expect_plan(const RunConfig& config, int ranks, const BatchPlan& expected) {
  const BatchPlan plan = resolve_batch(config, ranks);
  EXPECT_EQ(plan.global_batch, expected.global_batch);
  EXPECT_EQ(plan.micro_batch, expected.micro_batch);
  EXPECT_EQ(plan.accumulation, expected.accumulation);
}

TEST(Batch, WithoutAGlobalBatchWorkPerRankStaysTheRecipes) {
  expect_plan(batch(0, 0, 0), 1, {1, 1, 1});
  expect_plan(batch(0, 0, 0), 3, {3, 1, 1});
  expect_plan(batch(0, 5, 2), 3, {30, 5, 2});
  expect_plan(batch(0, 0, 4), 7, {28, 1, 4});
}

TEST(Batch, AGlobalBatchIsCutIntoMicroSteps) {
  expect_plan(batch(36, 2, 0), 3, {36, 2, 6});
  expect_plan(batch(36, 2, 6), 3, {36, 2, 6});
  expect_plan(batch(36, 12, 0), 3, {36, 12, 1});
}

TEST(Batch, WithoutAMicroBatchItIsTheWholeShareOrWhatAccumulationLeaves) {
  expect_plan(batch(36, 0, 0), 3, {36, 12, 1});
  expect_plan(batch(36, 0, 3), 4, {36, 3, 3});
  expect_plan(batch(7, 0, 0), 7, {7, 1, 1});
}

TEST(Batch, EveryPlanAddsUpAndEveryRefusalIsRight) {
  for (std::int64_t global = 1; global <= 30; ++global) {
    for (std::int64_t micro = 0; micro <= 7; ++micro) {
      for (std::int64_t steps = 0; steps <= 5; ++steps) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
          const std::int64_t unit = ranks * (micro > 0 ? micro : std::max<std::int64_t>(1, steps));
          const bool possible = global % unit == 0 && (micro == 0 || steps == 0 || global == unit * steps);
          const RunConfig config = batch(global, micro, steps);
          ASSERT_EQ(refusal(config, ranks).empty(), possible) << global << " " << micro << " " << steps << " " << ranks;
          if (possible) {
            const BatchPlan plan = resolve_batch(config, ranks);
            ASSERT_EQ(plan.micro_batch * plan.accumulation * ranks, global);
            ASSERT_TRUE(micro == 0 || plan.micro_batch == micro);
            ASSERT_TRUE(steps == 0 || plan.accumulation == steps);
          }
        }
      }
    }
  }
}

/// The numbers that the message offers as remedies in one form: "data.micro_batch = 2 or 4" has two.
std::vector<std::int64_t> offered(const std::string& message, const std::regex& form) {
  std::smatch match;
  const std::string remedies = message.substr(message.find("what works"));
  if (!std::regex_search(remedies, match, form)) {
    return {};
  }
  std::vector<std::int64_t> values{std::stoll(match[1])};
  if (match[2].matched) {
    values.push_back(std::stoll(match[2]));
  }
  return values;
}

class Remedies : public ::testing::TestWithParam<int> {};

TEST_P(Remedies, AllWork) {
  static const std::regex kGlobal("global_batch = (\\d+)(?: or (\\d+))?");
  static const std::regex kMicro("micro_batch = (\\d+)(?: or (\\d+))?");
  static const std::regex kSteps("accumulation = (\\d+)(?: or (\\d+))?");
  static const std::regex kRanks("(\\d+)(?: or (\\d+))? rank\\(s\\)");
  const std::int64_t global = GetParam();
  int offers = 0;
  const auto check = [&](const RunConfig& config, std::int64_t ranks, const std::string& message) {
    EXPECT_EQ(refusal(config, static_cast<int>(ranks)), "") << "offered by: " << message;
    ++offers;
  };
  const auto check_all = [&](std::int64_t micro, std::int64_t steps, int ranks) {
    const std::string message = refusal(batch(global, micro, steps), ranks);
    if (message.empty()) {
      return;
    }
    ASSERT_FALSE(offered(message, kGlobal).empty()) << message;
    for (const auto value : offered(message, kGlobal)) {
      check(batch(value, micro, steps), ranks, message);
    }
    for (const auto value : offered(message, kMicro)) {
      check(batch(global, value, steps), ranks, message);
    }
    for (const auto value : offered(message, kSteps)) {
      check(batch(global, micro, value), ranks, message);
    }
    for (const auto value : offered(message, kRanks)) {
      check(batch(global, micro, steps), value, message);
    }
  };
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::int64_t pieces = 1; pieces <= 6; ++pieces) {
      check_all(pieces, 0, ranks);
      check_all(0, pieces, ranks);
    }
  }
  EXPECT_GT(offers, 40);
}

INSTANTIATE_TEST_SUITE_P(PrimesAndOthers, Remedies, ::testing::Values(1, 2, 7, 12, 31, 36, 37, 60));

TEST(Batch, PrimesNameTheirNeighbours) {
  EXPECT_THAT(refusal(batch(37, 0, 0), 3),
              AllOf(HasSubstr("data.global_batch = 37"), HasSubstr("3 rank(s)"), HasSubstr("data.global_batch = 36 or 39"),
                    HasSubstr("1 or 37 rank(s)"), Not(HasSubstr("data.micro_batch ="))));
  EXPECT_THAT(refusal(batch(7, 1, 0), 2), AllOf(HasSubstr("6 or 8"), HasSubstr("1 or 7 rank(s)")));
  EXPECT_THAT(refusal(batch(2, 1, 0), 3), AllOf(HasSubstr("data.global_batch = 3;"), HasSubstr("2 rank(s)")));
  EXPECT_THAT(refusal(batch(39, 2, 0), 3), AllOf(HasSubstr("36 or 42"), HasSubstr("data.micro_batch = 1 or 13")));
  EXPECT_THAT(refusal(batch(12, 64, 0), 2), AllOf(HasSubstr("data.global_batch = 128"), HasSubstr("data.micro_batch = 6")));
  EXPECT_THAT(refusal(batch(36, 0, 5), 3), AllOf(HasSubstr("30 or 45"), HasSubstr("data.accumulation = 4 or 6")));
}

TEST(Batch, ContradictingAccumulationSaysWhatItTakes) {
  EXPECT_THAT(refusal(batch(36, 2, 2), 3), AllOf(HasSubstr("data.accumulation = 2 contradicts"), HasSubstr("6 micro-step(s)"),
                                                 HasSubstr("data.micro_batch = 0")));
}

TEST(Batch, ProductsBeyondReasonAreRefusedNotOverflown) {
  EXPECT_THAT(refusal(batch(0, 1'000'000'000, 1'000'000), 4096), HasSubstr("exceeds"));
  EXPECT_NE(refusal(batch(999'999'999'989, 1'000'000'000, 1'000'000), 4096), "");
  expect_plan(batch(1'000'000'000'000, 1'000'000, 0), 1000, {1'000'000'000'000, 1'000'000, 1000});
}

TEST(Batch, SingleIsForOneRank) {
  RunConfig config = batch(0, 1, 0);
  config.technique.name = "single";
  expect_plan(config, 1, {1, 1, 1});
  EXPECT_THAT(refusal(config, 3), AllOf(HasSubstr("\"single\""), HasSubstr("3 were started"), HasSubstr("\"ddp\"")));
}

}  // namespace
}  // namespace shardmark::config
