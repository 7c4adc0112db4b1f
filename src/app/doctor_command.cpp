// `shardmark doctor`: looks at launcher, ranks, cores, devices, libraries, storage and messages; one line each with the remedy.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "analysis/table.hpp"
#include "app/command.hpp"
#include "app/doctor/checks.hpp"
#include "app/doctor/gather.hpp"
#include "app/one_voice.hpp"
#include "app/positive_number.hpp"
#include "base/log.hpp"
#include "device/cpu_facts.hpp"
#include "world/world.hpp"

namespace shardmark::app {
namespace {

struct DoctorArguments {
  std::string folder = ".";
  double deadline_s = 30;
  std::string format = "table";
};

base::ExitCode print(const doctor::JobFacts& job, analysis::Format format) {
  const auto lines = doctor::judge(job);
  analysis::TextTable table{{"check", "result", "found", "remedy"}, {}};
  for (const auto& line : lines) {
    table.rows.push_back({line.check, std::string(doctor::name_of(line.result)), line.found, line.remedy});
  }
  const auto count = [&](doctor::Result result) { return std::ranges::count(lines, result, &doctor::Line::result); };
  const auto worst = doctor::worst(lines);
  fmt::print("{}", analysis::render(table, format, std::string(doctor::name_of(worst))));
  let_results_pass();
  const auto warnings = count(doctor::Result::warn);
  base::log_info(fmt::format("doctor: {} checks, {} failed, {} warning{}", lines.size(), count(doctor::Result::fail), warnings,
                             warnings == 1 ? "" : "s"));
  return worst == doctor::Result::fail ? base::ExitCode::environment : base::ExitCode::good;
}

/// No launcher, or one that does not fit: what this process sees by itself. One of the processes prints.
base::ExitCode alone(doctor::JobFacts& job, doctor::RankFacts rank, const DoctorArguments& arguments, analysis::Format format) {
  if (!speaks_for_all()) {
    return base::ExitCode::environment;
  }
  job.ranks.push_back(std::move(rank));
  job.folder = doctor::gather_folder(arguments.folder);
  return print(job, format);
}

/// Messages did not arrive: rank 0 tells what is known so far, and the job ends.
[[noreturn]] void end_unheard(world::World& world, doctor::JobFacts& job, const std::exception& error,
                              analysis::Format format) {
  job.network.problem = error.what();
  if (world.rank() == 0) {
    static_cast<void>(print(job, format));
  } else if (world.rank() == 1) {
    base::log_error(error.what());  // rank 0 may be the silent one
  }
  world.abort(base::ExitCode::environment);
}

base::ExitCode together(world::World& world, doctor::JobFacts& job, doctor::RankFacts rank, const DoctorArguments& arguments,
                        analysis::Format format) {
  base::FaultPlan faults;
  world.collectively("the planted fault", [&] { faults = base::FaultPlan::from_environment(); });
  faults.set_world_rank(world.rank());
  rank.world_rank = world.rank();
  rank.node = world.node();
  rank.node_rank = world.node_rank();
  job.mpi_started = true;
  try {
    const auto text = doctor::to_text(rank);
    for (const auto& bytes : world.gather(std::as_bytes(std::span(text)))) {
      if (world.rank() == 0) {
        job.ranks.push_back(doctor::rank_facts_from(bytes));
      }
    }
    if (world.rank() == 0) {
      job.folder = doctor::gather_folder(arguments.folder);
    }
    if (world.size() > 1) {
      job.network.pairs = doctor::measure_pairs(world, faults);
    }
    const auto code = world.rank() == 0 ? print(job, format) : base::ExitCode::good;
    const auto same = world.broadcast(std::as_bytes(std::span(&code, 1)));
    return *reinterpret_cast<const base::ExitCode*>(same.data());
  } catch (const base::Error& error) {
    if (world.rank() == 0 && job.ranks.empty()) {
      base::log_error(error.what());
      world.abort(base::exit_code_of(error));
    }
    end_unheard(world, job, error, format);
  }
}

base::ExitCode run_doctor(const DoctorArguments& arguments) {
  const auto format = analysis::parse_format(arguments.format);
  device::set_compute_threads(1);
  doctor::JobFacts job;
  job.launcher = doctor::gather_launcher();
  auto environment = doctor::gather_environment();
  auto rank = doctor::gather_rank();
  rank.environment = std::move(environment);
  if (job.launcher.name.empty() || !job.launcher.problem.empty()) {
    return alone(job, std::move(rank), arguments, format);
  }
  std::optional<world::World> world;
  try {
    world.emplace(world::WorldOptions{arguments.deadline_s, arguments.deadline_s});
  } catch (const base::Error& error) {
    job.world_problem = error.what();
  }
  if (!world) {
    return alone(job, std::move(rank), arguments, format);
  }
  if (world->size() == 1 && job.launcher.rank > 0) {  // one of several that each believe to be alone
    return alone(job, std::move(rank), arguments, format);
  }
  return together(*world, job, std::move(rank), arguments, format);
}

}  // namespace

void add_doctor_command(CLI::App& program, Action& chosen) {
  auto* command =
      program.add_subcommand("doctor", "what is wrong with launcher, cores, devices, libraries, storage and messages");
  command->footer("Example: mpirun -np 2 shardmark doctor --folder results\nExit 5 if a check fails, 0 with warnings.");
  auto arguments = std::make_shared<DoctorArguments>();
  command->add_option("--folder", arguments->folder, "where records would be written (default: the working folder)");
  command->add_option("--deadline", arguments->deadline_s, "seconds that ranks wait for each other (default 30)")
      ->check(check_positive("seconds"));
  command->add_option("--format", arguments->format, "table, json, csv or md");
  command->callback([&chosen, arguments] { chosen = [arguments] { return run_doctor(*arguments); }; });
}

}  // namespace shardmark::app
