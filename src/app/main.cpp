// The program: finds the subcommand, runs it, turns errors into exit codes.

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "app/build_info.hpp"
#include "app/command.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#ifdef SM_WITH_TRAIN
#include "app/one_voice.hpp"
#endif

namespace shardmark::app {
namespace {

/// Bad usage that shows before MPI has started: alike on all ranks, so one of them tells.
int refuse(const std::string& problem) {
#ifdef SM_WITH_TRAIN
  if (!speaks_for_all()) {
    return static_cast<int>(base::ExitCode::usage);
  }
#endif
  base::log_error(problem);
  return static_cast<int>(base::ExitCode::usage);
}

int run_program(int argc, char** argv) {
  CLI::App program("shardmark: trains the same workloads under every way of spreading training over ranks, and measures it");
  program.set_version_flag("--version",
                           std::string("shardmark ") + kVersion + " (" + kCommit + (kDirty != 0 ? ", changed)" : ")"));
  program.require_subcommand(1);
  program.footer("Example: mpirun -np 2 shardmark run mlp-digits --technique ddp -o digits.h5");
  Action chosen;
#ifdef SM_WITH_TRAIN
  add_run_command(program, chosen);
  add_plan_command(program, chosen);
  add_verify_command(program, chosen);
  add_comm_command(program, chosen);
  add_doctor_command(program, chosen);
#endif
  add_show_command(program, chosen);
  add_export_command(program, chosen);
  add_compare_command(program, chosen);
  add_list_command(program, chosen);
  add_explain_command(program, chosen);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return program.exit(request);      // --help, --version
  } catch (const CLI::ExtrasError&) {  // whose own text has them in another order
    return refuse("not accepted: " + base::join(program.remaining(true), " ") +
                  "; `shardmark --help` and `shardmark COMMAND --help` show what is accepted");
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + "; `shardmark --help` and `shardmark COMMAND --help` show what is accepted");
  }
  return static_cast<int>(chosen());
}

}  // namespace
}  // namespace shardmark::app

int main(int argc, char** argv) {
  try {
    return shardmark::app::run_program(argc, argv);
  } catch (const shardmark::base::ConfigError& error) {
    return shardmark::app::refuse(error.what());
  } catch (const std::exception& error) {
    shardmark::base::log_error(error.what());
    return static_cast<int>(shardmark::base::exit_code_of(error));
  }
}
