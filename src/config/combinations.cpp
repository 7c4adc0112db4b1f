#include "config/combinations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace shardmark::config {

std::string nearest_multiples(std::int64_t wanted, std::int64_t unit) {
  const std::int64_t below = wanted / unit * unit;
  return below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
}

std::vector<std::string> impossible_combinations(const RunConfig& config, const std::function<bool(std::string_view)>& sound) {
  std::vector<std::string> problems;
  const auto refuse = [&](bool impossible, std::initializer_list<std::string_view> involved, const auto& text) {
    if (impossible && std::ranges::all_of(involved, sound)) {
      problems.push_back(text());
    }
  };
  const auto& [name, warmup_steps, total_steps, min_lr_rate, step_every, gamma] = config.schedule;
  const auto& data = config.data;

  refuse(config.workload.name.empty(), {"workload.name"},
         [] { return std::string("workload.name is missing: name a workload, or start from a preset (preset = \"mlp\")"); });
  refuse(total_steps > 0 && warmup_steps > total_steps, {"schedule.warmup_steps", "schedule.total_steps"}, [&] {
    return fmt::format("schedule.warmup_steps = {} exceeds schedule.total_steps = {}: warm up for less, or decay for longer",
                       warmup_steps, total_steps);
  });
  refuse(name == "step" && step_every == 0, {"schedule.name", "schedule.step_every"},
         [] { return std::string("schedule.name = \"step\" needs schedule.step_every of at least 1"); });
  const auto& precision = config.precision;
  refuse(precision.compute == "fp32" && precision.parameters == "bf16", {"precision.compute", "precision.parameters"}, [] {
    return std::string(
        "precision.compute = \"fp32\" is wider than precision.parameters = \"bf16\": compute in bf16, or keep "
        "parameters in fp32");
  });
  refuse(config.optimizer.name == "adamw8bit" && precision.state == "bf16", {"optimizer.name", "precision.state"}, [] {
    return std::string(
        "precision.state = \"bf16\" does not go with optimizer.name = \"adamw8bit\", whose states are 8-bit codes: leave it at "
        "fp32, or use adamw");
  });
  refuse(config.technique.offload == "optimizer" && config.optimizer.name == "sgd" && config.optimizer.momentum == 0,
         {"technique.offload", "optimizer.name", "optimizer.momentum"}, [] {
           return std::string(
               "technique.offload = \"optimizer\" has nothing to offload: optimizer.name = \"sgd\" with optimizer.momentum = 0 "
               "keeps no states; set optimizer.momentum, choose another optimizer, or leave technique.offload at none");
         });
  refuse((config.evaluate.every > 0 || config.evaluate.target != 0) && data.eval_path.empty(),
         {"evaluate.every", "evaluate.target", "data.eval_path"},
         [] { return std::string("evaluate.every and evaluate.target need held-out rows: name them by data.eval_path"); });
  // resolve_batch knows the ranks and checks the rest.
  const std::int64_t per_rank = std::max<std::int64_t>(1, data.micro_batch) * std::max<std::int64_t>(1, data.accumulation);
  refuse(data.global_batch % per_rank != 0, {"data.global_batch", "data.micro_batch", "data.accumulation"}, [&] {
    return fmt::format(
        "data.global_batch = {} is not a whole number of data.micro_batch x data.accumulation = {} rows at any number of "
        "ranks: the nearest that are: {}; or set data.micro_batch = 0",
        data.global_batch, per_rank, nearest_multiples(data.global_batch, per_rank));
  });
  return problems;
}

}  // namespace shardmark::config
