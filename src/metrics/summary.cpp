#include "metrics/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

namespace shardmark::metrics {
namespace {

struct BlockTotals {
  std::map<std::int64_t, double> time_by_rank;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  [[nodiscard]] double slowest() const {
    double largest = 0;
    for (const auto& [rank, time] : time_by_rank) {
      largest = std::max(largest, time);
    }
    return largest;
  }
};

/// Two-sided 97.5 % points of Student's t for 1 to 30 degrees of freedom; the normal's beyond.
double student_t(std::size_t degrees) {
  constexpr std::array<double, 30> points{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                          2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                          2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return degrees == 0 ? record::kMissing : degrees <= points.size() ? points[degrees - 1] : 1.960;
}

struct Moments {
  double mean = 0;
  double deviation = 0;  // of the sample
};

Moments moments(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1)) : record::kMissing};
}

}  // namespace

double quantile(std::vector<double> values, double p) {
  if (values.empty()) {
    return record::kMissing;
  }
  std::ranges::sort(values);
  const double at = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const auto above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

std::vector<double> step_times(std::span<const record::StepRow> rows) {
  std::map<std::int64_t, double> slowest;
  for (const auto& row : rows) {
    if (row.timed != 0) {
      auto& time = slowest[row.step];
      time = std::max(time, row.total_s);
    }
  }
  std::vector<double> times;
  for (const auto& [step, time] : slowest) {
    times.push_back(time);
  }
  return times;
}

Throughput throughput(std::span<const record::StepRow> rows) {
  std::map<std::int64_t, BlockTotals> blocks;
  for (const auto& row : rows) {
    if (row.timed != 0) {
      auto& block = blocks[row.block];
      block.time_by_rank[row.rank] += row.total_s;
      block.samples += row.samples;
      block.tokens += row.tokens;
    }
  }
  Throughput result;
  if (blocks.empty()) {
    return result;
  }
  double time = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::vector<double> rates;
  for (const auto& [index, block] : blocks) {
    time += block.slowest();
    samples += block.samples;
    tokens += block.tokens;
    rates.push_back(static_cast<double>(block.samples) / block.slowest());
  }
  result.samples_per_s = static_cast<double>(samples) / time;
  result.tokens_per_s = static_cast<double>(tokens) / time;
  if (rates.size() > 1) {
    const double half = student_t(rates.size() - 1) * moments(rates).deviation / std::sqrt(static_cast<double>(rates.size()));
    result.low = std::max(0.0, result.samples_per_s - half);  // a rate is never negative, whatever the spread of few blocks
    result.high = result.samples_per_s + half;
  }
  return result;
}

bool is_steady(std::span<const double> step_times_s) {
  const std::size_t third = step_times_s.size() / 3;
  if (third == 0) {
    return false;
  }
  const auto median_of = [](std::span<const double> part) { return quantile({part.begin(), part.end()}, 0.5); };
  const double first = median_of(step_times_s.first(third));
  const double last = median_of(step_times_s.last(third));
  return std::abs(last - first) < 0.05 * first;
}

double exposed_fraction(std::span<const record::StepRow> rows) {
  double exposed = 0;
  double total = 0;
  for (const auto& row : rows) {
    if (row.timed != 0) {
      exposed += row.comm_exposed_s;
      total += row.total_s;
    }
  }
  return total > 0 ? exposed / total : record::kMissing;
}

double energy_per_step(std::span<const record::StepRow> rows) {
  double energy_j = 0;
  for (const auto& row : rows) {
    energy_j += row.timed != 0 ? row.energy_j : 0;
  }
  const auto steps = step_times(rows).size();
  return steps > 0 ? energy_j / static_cast<double>(steps) : record::kMissing;
}

void summarise_steps(std::span<const record::StepRow> rows, int world_size, bool warmed_up, record::SummaryRow& summary) {
  const auto times = step_times(rows);
  summary.warmed_up = warmed_up ? 1 : 0;
  summary.steady = is_steady(times) ? 1 : 0;
  summary.comm_exposed_fraction = exposed_fraction(rows);
  summary.energy_j_per_step = energy_per_step(rows);
  for (const auto& row : rows) {
    if (row.rank == 0) {
      summary.steps_applied += row.applied;
      summary.steps_skipped += 1 - row.applied;
      if (row.step == 0) {
        summary.loss_first = row.loss;
        summary.first_step_s = row.total_s;
      }
      summary.loss_final = row.loss;
    }
  }
  if (!times.empty()) {
    summary.step_time_median_s = quantile(times, 0.5);
    summary.step_time_p95_s = quantile(times, 0.95);
    const auto spread = moments(times);
    summary.step_time_cv = spread.deviation / spread.mean;
  }
  if (!warmed_up) {
    return;
  }
  const auto rate = throughput(rows);
  summary.samples_per_s = rate.samples_per_s;
  summary.tokens_per_s = rate.tokens_per_s;
  summary.samples_per_s_per_gpu = rate.samples_per_s / world_size;
  summary.tokens_per_s_per_gpu = rate.tokens_per_s / world_size;
  summary.throughput_low = rate.low;
  summary.throughput_high = rate.high;
  if (std::isfinite(summary.peak_flops) && std::isfinite(summary.flops_per_step_model)) {
    // Peak of one rank's device against one rank's share of the step.
    summary.mfu = summary.flops_per_step_model / world_size / summary.step_time_median_s / summary.peak_flops;
  }
}

void summarise_evaluations(std::span<const record::EvaluationRow> rows, const QualityGoal& goal, record::SummaryRow& summary) {
  const double sign = goal.higher_is_better ? 1 : -1;
  for (const auto& row : rows) {
    const bool first = std::isnan(summary.quality_best);
    if (std::isfinite(row.quality) && (first || sign * row.quality > sign * summary.quality_best)) {
      summary.quality_best = row.quality;
      summary.quality_best_steps = row.steps;
    }
    if (goal.target != 0 && summary.steps_to_target < 0 && sign * row.quality >= sign * goal.target) {
      summary.steps_to_target = row.steps;
      summary.time_to_target_s = row.time_s;
    }
  }
}

}  // namespace shardmark::metrics
