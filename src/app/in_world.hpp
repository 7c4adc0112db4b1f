#pragma once
// What commands that train share: the options of a case, the start of a world around it, the end of a job.

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

using WorldBody = std::function<base::ExitCode(world::World&, config::RunConfig, base::FaultPlan&)>;
/// Checks the launcher, starts MPI and, if the configuration loaded on all ranks, runs `body`. A bad configuration is
/// reported once. Installs the memory ledger and signal handlers. Collective under a launcher.
[[nodiscard]] base::ExitCode in_world(const CaseArguments& arguments, const WorldBody& body);

/// Whether every rank sees this error by construction, so that one message is enough.
[[nodiscard]] bool is_common(const std::exception& error);
/// Ends the job on all ranks with the error's code, telling the others first where they cannot know. Does not communicate.
[[noreturn]] void end_job(world::World& world, const std::exception& error);

}  // namespace shardmark::app
