#pragma once
// Learning rates by step: pure functions (facts: linear warm-up s / max(1, w), then the named decay).

#include <cstdint>

#include "config/run_config.hpp"

namespace shardmark::train {

/// Learning rate of optimizer step `step` (from 0) in a run of `run_steps`; schedule.total_steps = 0 means the run's length.
[[nodiscard]] double learning_rate(const config::ScheduleSection& schedule, double base_lr, std::int64_t step,
                                   std::int64_t run_steps);

}  // namespace shardmark::train
