// The formulas of the summary on step rows with exact answers.

#include "metrics/summary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace shardmark::metrics {
namespace {

record::StepRow row(std::int64_t block, std::int64_t step, std::int64_t rank, double total_s, std::int64_t samples) {
  record::StepRow made;
  made.block = block;
  made.step = step;
  made.rank = rank;
  made.timed = block >= 0 ? 1 : 0;
  made.total_s = total_s;
  made.samples = samples;
  made.applied = 1;
  made.loss = 1;
  return made;
}

TEST(Summary, SlowestRankDecides) {
  // 8 samples a rank in 100, 100, 100 and 200 ms: 32 samples in 0.2 s, not the 280 of a mean of rates.
  std::vector<record::StepRow> rows;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    rows.push_back(row(0, 3, rank, rank == 3 ? 0.2 : 0.1, 8));
  }
  EXPECT_DOUBLE_EQ(throughput(rows).samples_per_s, 160.0);
  EXPECT_EQ(step_times(rows), std::vector<double>{0.2});
}

TEST(Summary, WorkOverSumOfBlockTimes) {
  // Blocks of 1 s and 3 s with 10 samples each: 20 samples in 4 s, not the mean of 10 and 3.33.
  const std::vector<record::StepRow> rows{row(-1, 0, 0, 50, 1000), row(0, 1, 0, 1, 10), row(1, 2, 0, 3, 10)};
  const auto rate = throughput(rows);
  EXPECT_DOUBLE_EQ(rate.samples_per_s, 5.0);
  EXPECT_LT(rate.low, rate.samples_per_s);
  EXPECT_GT(rate.high, rate.samples_per_s);
}

TEST(Summary, NoTimedRowsNoThroughput) {
  EXPECT_TRUE(std::isnan(throughput({}).samples_per_s));
  record::SummaryRow summary;
  summarise_steps(std::vector{row(-1, 0, 0, 1, 1)}, 1, false, summary);
  EXPECT_TRUE(std::isnan(summary.samples_per_s));
  EXPECT_EQ(summary.steps_applied, 1);
}

TEST(Summary, Quantiles) {
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({7}, 0.95), 7.0);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(Summary, SteadyState) {
  EXPECT_TRUE(is_steady(std::vector<double>{1.0, 1.0, 1.0, 1.0, 1.04, 1.04}));
  EXPECT_FALSE(is_steady(std::vector<double>{2.0, 2.0, 1.0, 1.0, 1.0, 1.0}));
  EXPECT_FALSE(is_steady(std::vector<double>{1.0, 1.0})) << "too few steps prove nothing";
}

TEST(Summary, EnergyOfAStepIsThatOfAllRanks) {
  std::vector<record::StepRow> rows;
  for (std::int64_t step = -1; step < 4; ++step) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      rows.push_back(row(step < 0 ? -1 : step / 2, step + 1, rank, 0.1, 8));
      rows.back().energy_j = step < 0 ? 1000 : 10 + static_cast<double>(rank);
    }
  }
  EXPECT_DOUBLE_EQ(energy_per_step(rows), 21) << "10 J and 11 J; the warm-up does not count";
  record::SummaryRow summary;
  summarise_steps(rows, 2, true, summary);
  EXPECT_DOUBLE_EQ(summary.energy_j_per_step, 21);
  rows.back().energy_j = record::kMissing;
  EXPECT_TRUE(std::isnan(energy_per_step(rows))) << "a part would look like the whole";
  EXPECT_TRUE(std::isnan(energy_per_step({})));
}

record::SummaryRow summary_of(std::vector<record::EvaluationRow> rows, const QualityGoal& goal) {
  record::SummaryRow summary;
  summarise_evaluations(rows, goal, summary);
  return summary;
}

TEST(Evaluations, TheFirstToReachTheTargetGivesItsTime) {
  const std::vector<record::EvaluationRow> rows{
      {10, 0.4, 1.5, 0.1}, {20, 0.7, 2.5, 0.1}, {30, 0.6, 3.5, 0.1}, {40, 0.7, 4.5, 0.1}};
  const auto rising = summary_of(rows, {.higher_is_better = true, .target = 0.6});
  EXPECT_EQ(rising.quality_best, 0.7);
  EXPECT_EQ(rising.quality_best_steps, 20);
  EXPECT_EQ(rising.steps_to_target, 20);
  EXPECT_EQ(rising.time_to_target_s, 2.5);
  const auto falling = summary_of(rows, {.higher_is_better = false, .target = 0.4});
  EXPECT_EQ(falling.quality_best, 0.4);
  EXPECT_EQ(falling.quality_best_steps, 10);
  EXPECT_EQ(falling.steps_to_target, 10) << "reached is reached, equal too";
}

TEST(Evaluations, WithoutATargetOrWithoutReachingItThereIsNoTime) {
  const std::vector<record::EvaluationRow> rows{{10, std::nan(""), 1, 0.1}, {20, 0.2, 2, 0.1}};
  for (const double target : {0.0, 0.3}) {
    const auto summary = summary_of(rows, {.higher_is_better = true, .target = target});
    EXPECT_EQ(summary.quality_best, 0.2) << "a quality that is no number is passed over";
    EXPECT_EQ(summary.steps_to_target, -1);
    EXPECT_TRUE(std::isnan(summary.time_to_target_s));
  }
  const auto none = summary_of({}, {.higher_is_better = true, .target = 0.3});
  EXPECT_TRUE(std::isnan(none.quality_best));
  EXPECT_EQ(none.quality_best_steps, -1);
}

}  // namespace
}  // namespace shardmark::metrics
