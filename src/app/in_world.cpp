#include "app/in_world.hpp"

#include <optional>
#include <utility>

#include "base/log.hpp"
#include "config/parse.hpp"
#include "device/cpu_facts.hpp"
#include "device/memory_ledger.hpp"
#include "train/stop_request.hpp"

namespace shardmark::app {

void add_case_options(CLI::App& command, CaseArguments& arguments) {
  command.add_option("case", arguments.preset_or_file, "a preset (see `shardmark list`) or FILE.toml")->required();
  command.add_option("--set", arguments.sets, "key=value, as often as needed (see `shardmark list --keys`)")
      ->allow_extra_args(false);
}

config::RunConfig load_case(const CaseArguments& arguments) {
  config::LoadRequest request;
  request.preset_or_file = arguments.preset_or_file;
  request.sets = arguments.sets;
  if (!arguments.technique.empty()) {
    request.technique = arguments.technique;
  }
  if (!arguments.output.empty()) {
    request.output_path = arguments.output;
  }
  request.preset_dir = config::find_preset_dir();
  return config::load_config(request);
}

base::ExitCode in_world(const std::function<WorldStart()>& prepare,
                        const std::function<base::ExitCode(world::World&, base::FaultPlan&)>& body) {
  world::check_launcher();
  // Under a launcher bad input is reported by all ranks together, once; alone there is nobody to wait for.
  WorldStart start;
  std::exception_ptr problem;
  try {
    start = prepare();
  } catch (const base::Error&) {
    problem = std::current_exception();
    if (world::launcher_size().size <= 1) {
      std::rethrow_exception(problem);
    }
  }
  device::set_compute_threads(1);
  train::install_signal_handlers();
  world::World world({start.init_deadline_s, start.deadline_s});
  base::set_log_identity(world.rank(), world.size(), world.host());
  world.set_interrupt_flag(train::interrupt_flag());
  start.faults.set_world_rank(world.rank());
  try {
    world.collectively("the configuration", [&] {
      if (problem) {
        std::rethrow_exception(problem);
      }
    });
  } catch (const base::Error& error) {
    if (world.rank() == 0) {
      base::log_error(error.what());
    }
    return error.code();
  }
  return body(world, start.faults);
}

namespace {

/// Throws ConfigError for a fault that only `shardmark comm` plants: here it would pass for survived.
base::FaultPlan faults_of_training() {
  auto faults = base::FaultPlan::from_environment();
  if (!faults.text().empty()) {
    const auto fault = base::parse_fault(faults.text());
    if (fault.phase == base::FaultPhase::comm && fault.kind == base::FaultKind::bitflip) {
      throw base::ConfigError(
          "SHARDMARK_FAULT = \"" + faults.text() +
          "\": bitflip in phase comm is planted by `shardmark comm` alone; training plants it in optimizer");
    }
  }
  return faults;
}

}  // namespace

base::ExitCode in_world(const CaseArguments& arguments, const WorldBody& body) {
  config::RunConfig config;
  return in_world(
      [&] {
        config = load_case(arguments);
        device::install_memory_ledger();
        return WorldStart{config.comm.init_deadline_s, config.comm.deadline_s, faults_of_training()};
      },
      [&](world::World& world, base::FaultPlan& faults) { return body(world, std::move(config), faults); });
}

/// Whether every rank sees this error by construction, so that one message is enough.
bool is_common(const std::exception& error) {
  return dynamic_cast<const base::NumericsError*>(&error) != nullptr ||
         dynamic_cast<const base::MismatchError*>(&error) != nullptr ||
         dynamic_cast<const base::RemoteError*>(&error) != nullptr || dynamic_cast<const base::ConfigError*>(&error) != nullptr;
}

void end_job(world::World& world, const std::exception& error) {
  const auto code = base::exit_code_of(error);
  if (!is_common(error)) {
    world.report_failure(code, error.what());
  }
  world.abort(code);
}

}  // namespace shardmark::app
