// `shardmark plan`: memory and messages of every technique on a number of ranks, from the formulas that runs are held to.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "app/command.hpp"
#include "app/in_world.hpp"
#include "app/positive_number.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "parallel/plan_technique.hpp"
#include "train/strategy_options.hpp"
#include "workloads/table.hpp"

namespace shardmark::app {
namespace {

struct PlanArguments {
  CaseArguments the_case;
  std::int64_t gpus = 0;
  double memory_gib = 0;  // 0 = not said
  std::string format = "table";
};

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// Where training runs: host memory beside it is shown, but does not have to fit there.
std::int64_t sum(const device::CategoryBytes& bytes) {
  const auto all = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  return all - bytes[static_cast<std::size_t>(device::MemoryCategory::offloaded)];
}

/// The larger of forward, backward and optimizer, by category.
device::CategoryBytes largest(const parallel::TechniquePlan& plan) {
  device::CategoryBytes most = plan.forward;
  for (std::size_t c = 0; c < most.size(); ++c) {
    most[c] = std::max({most[c], plan.backward[c], plan.optimizer[c]});
  }
  return most;
}

std::int64_t peak(const parallel::TechniquePlan& plan) {
  return std::max({sum(plan.forward), sum(plan.backward), sum(plan.optimizer)});
}

std::string fits(const parallel::TechniquePlan& plan, double memory_gib) {
  return memory_gib == 0 ? "" : static_cast<double>(peak(plan)) <= memory_gib * kGiB ? "before activations" : "no";
}

void add_rows(analysis::TextTable& table, const std::string& technique, const parallel::TechniquePlan& plan,
              const PlanArguments& arguments) {
  const auto add = [&](const std::string& phase, const std::string& category, std::int64_t predicted, std::int64_t persistent) {
    table.rows.push_back({technique, arguments.gpus, phase, category, predicted, persistent, fits(plan, arguments.memory_gib),
                          kMissing, plan.payload_bytes});
  };
  const auto run = largest(plan);
  const std::array<std::pair<const char*, const device::CategoryBytes*>, 4> phases{
      {{"forward", &plan.forward}, {"backward", &plan.backward}, {"optimizer", &plan.optimizer}, {"run", &run}}};
  for (const auto& [phase, bytes] : phases) {
    for (const auto category :
         {device::MemoryCategory::parameters, device::MemoryCategory::gradients, device::MemoryCategory::optimizer_state,
          device::MemoryCategory::offloaded, device::MemoryCategory::gathered, device::MemoryCategory::buckets}) {
      const auto c = static_cast<std::size_t>(category);
      add(phase, std::string(device::name_of(category)), (*bytes)[c], plan.persistent[c]);
    }
    add(phase, "total", std::string(phase) == "run" ? peak(plan) : sum(*bytes), sum(plan.persistent));
  }
}

base::ExitCode plan(const PlanArguments& arguments) {
  const auto format = analysis::parse_format(arguments.format);
  auto config = load_case(arguments.the_case);
  const auto ranks = static_cast<int>(arguments.gpus);
  config.technique.name = ranks == 1 ? "single" : "ddp";  // so that the batch is cut for these ranks
  const auto batch = config::resolve_batch(config, ranks);
  const auto workload = workloads::make_workload(config);
  base::FaultPlan no_faults;
  const auto options = train::strategy_options(config, batch, arguments.gpus, no_faults);
  analysis::TextTable table{{"technique", "world_size", "phase", "category", "predicted_bytes", "persistent_bytes", "fits",
                             "step_time_s", "wire_bytes_per_step"},
                            {}};
  std::vector<std::string> best;
  double least = 0;
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  std::string smallest_name;
  for (const auto& technique : parallel::technique_names()) {
    if (technique == "single" && arguments.gpus != 1) {
      continue;
    }
    const auto planned = parallel::plan_technique(technique, options, workload->parameters(), arguments.gpus);
    add_rows(table, technique, planned, arguments);
    if (fits(planned, arguments.memory_gib) != "no") {
      if (best.empty() || planned.payload_bytes < least) {
        best.clear();
        least = planned.payload_bytes;
      }
      if (planned.payload_bytes == least) {
        best.push_back(technique);
      }
    }
    if (peak(planned) < smallest) {
      smallest = peak(planned);
      smallest_name = technique;
    }
  }
  const std::string verdict = best.empty()
                                  ? fmt::format("nothing fits: {} needs least, {:.3g} GiB a rank before activations",
                                                smallest_name, static_cast<double>(smallest) / kGiB)
                                  : fmt::format("least is sent by {}{}: {:.4g} bytes a rank and step", base::join(best, ", "),
                                                arguments.memory_gib > 0 ? " of those that fit before activations" : "", least);
  fmt::print("{}", analysis::render(table, format, verdict));
  base::log_info(fmt::format(
      "plan: {}; activations are not part of any number, and without a machine model there is no step time{}", verdict,
      config.technique.offload == "optimizer"
          ? "; offloaded bytes lie in host memory: no total holds them, and they are not judged to fit"
          : ""));
  return base::ExitCode::good;
}

}  // namespace

void add_plan_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("plan", "memory and messages of every technique on a number of ranks");
  command->footer("Example: shardmark plan lm10m --gpus 8 --memory 0.1");
  auto arguments = std::make_shared<PlanArguments>();
  add_case_options(*command, arguments->the_case);
  command->add_option("--gpus", arguments->gpus, "ranks")->required()->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--memory", arguments->memory_gib,
                   "GiB of each rank, activations excluded; without it nothing is judged to fit or not")
      ->check(check_positive("GiB"));
  command->add_option("--format", arguments->format, "table, json, csv or md");
  command->callback([&chosen, arguments] { chosen = [arguments] { return plan(*arguments); }; });
}

}  // namespace shardmark::app
