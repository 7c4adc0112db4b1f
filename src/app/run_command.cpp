// `shardmark run`: trains one case under mpirun or srun and writes one record.

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/command.hpp"
#include "app/run_session.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"
#include "device/cpu_facts.hpp"
#include "device/memory_ledger.hpp"
#include "train/stop_request.hpp"
#include "world/world.hpp"

namespace shardmark::app {
namespace {

struct RunArguments {
  std::string preset_or_file;
  std::vector<std::string> sets;
  std::string technique;
  std::string output;
  bool print_config = false;
};

config::RunConfig load(const RunArguments& arguments) {
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

base::ExitCode run(const RunArguments& arguments) {
  const double start_s = base::now_s();
  if (arguments.print_config) {
    fmt::print("{}", config::to_toml_with_origins(load(arguments)));
    return base::ExitCode::good;
  }
  world::check_launcher();
  // Under a launcher a bad configuration is reported by all ranks together, once; alone there is nobody to wait for.
  config::RunConfig config;
  base::FaultPlan faults;
  std::exception_ptr problem;
  try {
    config = load(arguments);
    faults = base::FaultPlan::from_environment();
  } catch (const base::Error&) {
    problem = std::current_exception();
    if (world::launcher_size().size <= 1) {
      std::rethrow_exception(problem);
    }
  }
  device::install_memory_ledger();
  device::set_compute_threads(1);
  train::install_signal_handlers();
  const bool known = problem == nullptr;
  world::World world({known ? config.comm.init_deadline_s : 60.0, known ? config.comm.deadline_s : 60.0});
  base::set_log_identity(world.rank(), world.size(), world.host());
  world.set_interrupt_flag(train::interrupt_flag());
  faults.set_world_rank(world.rank());
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
  return run_session(world, std::move(config), faults, start_s);
}

}  // namespace

void add_run_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("run", "train one case under mpirun or srun and write one record");
  command->footer("Example: mpirun -np 2 shardmark run mlp-digits --technique ddp --set measure.steps=50 -o digits.h5");
  auto arguments = std::make_shared<RunArguments>();
  command->add_option("case", arguments->preset_or_file, "a preset (see `shardmark list`) or FILE.toml")->required();
  command->add_option("--technique", arguments->technique, "how training is spread over ranks: single, ddp");
  command->add_option("--set", arguments->sets, "key=value, as often as needed (see `shardmark list --keys`)")
      ->allow_extra_args(false);
  command->add_option("-o,--output", arguments->output, "the record's file");
  command->add_flag("--print-config", arguments->print_config, "show effective values and where each came from, and stop");
  command->callback([&chosen, arguments] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace shardmark::app
