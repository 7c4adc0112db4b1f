// `shardmark run`: trains one case under mpirun or srun and writes one record.

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "app/command.hpp"
#include "app/in_world.hpp"
#include "app/run_session.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "config/print.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::app {
namespace {

base::ExitCode run(const CaseArguments& arguments, bool print_config) {
  const double start_s = base::now_s();
  if (print_config) {
    fmt::print("{}", config::to_toml_with_origins(load_case(arguments)));
    return base::ExitCode::good;
  }
  return in_world(arguments, [start_s](world::World& world, config::RunConfig config, base::FaultPlan& faults) {
    return run_session(world, std::move(config), faults, start_s);
  });
}

}  // namespace

void add_run_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("run", "train one case under mpirun or srun and write one record");
  command->footer("Example: mpirun -np 2 shardmark run mlp-digits --technique ddp --set measure.steps=50 -o digits.h5");
  auto arguments = std::make_shared<CaseArguments>();
  add_case_options(*command, *arguments);
  command->add_option("--technique", arguments->technique,
                      "how training is spread over ranks: " + base::join(parallel::technique_names(), ", "));
  command->add_option("-o,--output", arguments->output, "the record's file");
  auto print_config = std::make_shared<bool>(false);
  command->add_flag("--print-config", *print_config, "show effective values and where each came from, and stop");
  command->callback(
      [&chosen, arguments, print_config] { chosen = [arguments, print_config] { return run(*arguments, *print_config); }; });
}

}  // namespace shardmark::app
