#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/run_config.hpp"

namespace shardmark::config {
namespace {

/// The whole multiples of `unit` next to `wanted`, as text.
std::string nearest_multiples(std::int64_t wanted, std::int64_t unit) {
  const std::int64_t below = wanted / unit * unit;
  return below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
}

}  // namespace

BatchPlan resolve_batch(const RunConfig& config, int world_size) {
  const auto& data = config.data;
  if (config.technique.name == "single" && world_size > 1) {
    throw base::ConfigError(fmt::format("technique.name = \"single\" trains on one rank, but {} were started: start one, or use \"ddp\"", world_size));
  }
  const std::int64_t ranks = world_size;
  const std::int64_t micro_given = data.micro_batch;
  const std::int64_t steps_given = data.accumulation;
  if (data.global_batch == 0) {
    const BatchPlan plan{0, std::max<std::int64_t>(1, micro_given), std::max<std::int64_t>(1, steps_given)};
    return {plan.micro_batch * plan.accumulation * ranks, plan.micro_batch, plan.accumulation};
  }
  const std::int64_t global = data.global_batch;
  if (micro_given == 0) {
    const std::int64_t steps = std::max<std::int64_t>(1, steps_given);
    const std::int64_t unit = ranks * steps;
    if (global % unit != 0) {
      throw base::ConfigError(fmt::format("data.global_batch = {} does not divide over {} rank(s) x {} micro-step(s): the nearest that work are {}",
                                          global, ranks, steps, nearest_multiples(global, unit)));
    }
    return {global, global / unit, steps};
  }
  const std::int64_t unit = ranks * micro_given;
  if (global % unit != 0) {
    throw base::ConfigError(fmt::format(
        "data.global_batch = {} is not a whole number of micro-steps of {} rank(s) x data.micro_batch = {}: the nearest global batches "
        "that work are {}; or set data.micro_batch = 0",
        global, ranks, micro_given, nearest_multiples(global, unit)));
  }
  if (steps_given > 0 && steps_given != global / unit) {
    throw base::ConfigError(fmt::format(
        "data.accumulation = {} contradicts data.global_batch = {}: over {} rank(s) x data.micro_batch = {} it takes {} micro-step(s); "
        "drop one of the three keys",
        steps_given, global, ranks, micro_given, global / unit));
  }
  return {global, micro_given, global / unit};
}

}  // namespace shardmark::config
