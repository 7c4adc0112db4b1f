#include "train/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardmark::train {

double learning_rate(const config::ScheduleSection& schedule, double base_lr, std::int64_t step, std::int64_t run_steps) {
  const auto at = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  const auto total = static_cast<double>(schedule.total_steps > 0 ? schedule.total_steps : run_steps);
  if (at < warmup) {
    return base_lr * at / std::max(1.0, warmup);
  }
  const double span = std::max(1.0, total - warmup);
  if (schedule.name == "linear") {
    return base_lr * std::max(0.0, (total - at) / span);
  }
  if (schedule.name == "cosine" || schedule.name == "cosine_min") {
    const double progress = std::min(1.0, (at - warmup) / span);
    const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    const double floor = schedule.name == "cosine_min" ? schedule.min_lr_rate : 0.0;
    return base_lr * (cosine * (1.0 - floor) + floor);
  }
  if (schedule.name == "step" && schedule.step_every > 0) {
    return base_lr * std::pow(schedule.gamma, std::floor(at / static_cast<double>(schedule.step_every)));
  }
  return base_lr;
}

}  // namespace shardmark::train
