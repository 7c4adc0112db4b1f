#pragma once
// What commands under a launcher share: the options of a case, the start of a world, the end of a job.

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fault.hpp"
#include "config/run_config.hpp"
#include "world/world.hpp"

namespace shardmark::app {

struct CaseArguments {
  std::string preset_or_file;
  std::vector<std::string> sets;
  std::string technique;
  std::string output;
};

/// PRESET or FILE and --set.
void add_case_options(CLI::App& command, CaseArguments& arguments);
/// Throws base::ConfigError listing every problem.
[[nodiscard]] config::RunConfig load_case(const CaseArguments& arguments);

/// What must be known before MPI starts.
struct WorldStart {
  double init_deadline_s = 60;
  double deadline_s = 60;
  base::FaultPlan faults;
};

/// Checks the launcher, calls `prepare`, starts MPI and, if `prepare` threw no base::Error on any rank, runs `body` with what
/// it planted. An error of `prepare` is reported once. Installs signal handlers. Collective under a launcher.
[[nodiscard]] base::ExitCode in_world(const std::function<WorldStart()>& prepare,
                                      const std::function<base::ExitCode(world::World&, base::FaultPlan&)>& body);

using WorldBody = std::function<base::ExitCode(world::World&, config::RunConfig, base::FaultPlan&)>;
/// The same for a command that trains: prepared is its configuration, and the memory ledger is installed.
[[nodiscard]] base::ExitCode in_world(const CaseArguments& arguments, const WorldBody& body);

/// Whether every rank sees this error by construction, so that one message is enough.
[[nodiscard]] bool is_common(const std::exception& error);
/// Ends the job on all ranks with the error's code, telling the others first where they cannot know. Does not communicate.
[[noreturn]] void end_job(world::World& world, const std::exception& error);

}  // namespace shardmark::app
