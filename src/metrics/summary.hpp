#pragma once
// The formulas of a run's summary: pure functions of its step rows. Each formula stands here once.

#include <cstdint>
#include <span>
#include <vector>

#include "record/rows.hpp"

namespace shardmark::metrics {

/// Linear interpolation between order statistics at p x (n-1). `values` need not be sorted; empty: NaN.
[[nodiscard]] double quantile(std::vector<double> values, double p);

/// Time of each timed step: the largest total_s over ranks, in step order.
[[nodiscard]] std::vector<double> step_times(std::span<const record::StepRow> rows);

struct Throughput {
  double samples_per_s = record::kMissing;  // all samples / sum over blocks of the largest rank's block time
  double tokens_per_s = record::kMissing;
  double low = record::kMissing;  // 95 % interval of samples_per_s from the spread of blocks (Student t)
  double high = record::kMissing;
};
/// Over all timed rows of all ranks. Missing without timed rows; the interval needs two blocks.
[[nodiscard]] Throughput throughput(std::span<const record::StepRow> rows);

/// True if the medians of the first and the last third of the timed steps differ by less than 5 %.
[[nodiscard]] bool is_steady(std::span<const double> step_times_s);

/// Exposed communication over step time, timed rows of all ranks.
[[nodiscard]] double exposed_fraction(std::span<const record::StepRow> rows);

/// Energy of all ranks' devices in a timed step: the sum over timed rows by the number of timed steps. NaN if a row has none.
[[nodiscard]] double energy_per_step(std::span<const record::StepRow> rows);

/// Fills every field of a summary that follows from step rows. `warmed_up`: at least 3 warm-up steps; without it no
/// throughput is given.
void summarise_steps(std::span<const record::StepRow> rows, int world_size, bool warmed_up, record::SummaryRow& summary);

/// What the qualities of a run's evaluations are held to.
struct QualityGoal {
  bool higher_is_better = true;
  double target = 0;  // 0 = none
};
/// Best quality and when it was reached first; when the target was. Qualities that are not numbers are passed over.
void summarise_evaluations(std::span<const record::EvaluationRow> rows, const QualityGoal& goal, record::SummaryRow& summary);

}  // namespace shardmark::metrics
