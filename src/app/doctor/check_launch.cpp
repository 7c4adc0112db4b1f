// Launcher, number of ranks and how they lie on nodes.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

Line launcher_line(const LauncherFacts& launcher) {
  if (!launcher.problem.empty() && launcher.srun_tasks > 1) {
    return {"launcher", Result::fail,
            fmt::format("srun started {} tasks without PMI (srun --mpi=none, or a Slurm without PMIx): {}", launcher.srun_tasks,
                        launcher.problem),
            "srun --mpi=pmix (`srun --mpi=list` shows what this Slurm has), or mpirun inside the allocation"};
  }
  if (!launcher.problem.empty()) {
    return {"launcher", Result::fail, launcher.problem, launcher.remedy};
  }
  if (launcher.name.empty()) {
    return {"launcher", Result::pass, "none: one process, MPI was not started", ""};
  }
  return {"launcher", Result::pass,
          launcher.size_variable.empty() ? launcher.name
                                         : fmt::format("{}, {} = {}", launcher.name, launcher.size_variable, launcher.size),
          ""};
}

Line world_line(const JobFacts& job) {
  const auto& launcher = job.launcher;
  const char* const kRemedy =
      "start with the mpirun of the MPI that this program is linked to (see the line of MPI below), or with srun --mpi=pmix";
  if (!job.world_problem.empty()) {
    return {"world size", Result::fail, job.world_problem, kRemedy};
  }
  if (!job.mpi_started) {
    return {"world size", Result::skip, "no launcher: ranks and messages between them were not looked at",
            "mpirun -np N shardmark doctor looks at N ranks"};
  }
  const auto size = static_cast<std::int64_t>(job.ranks.size());
  if (!launcher.size_variable.empty() && launcher.size != size) {
    return {"world size", Result::fail,
            fmt::format("{} = {}, but MPI sees {}", launcher.size_variable, launcher.size, count_text(size, "rank")), kRemedy};
  }
  return {"world size", Result::pass,
          fmt::format("{} on {}", count_text(size, "rank"), count_text(std::ssize(by_node(job.ranks)), "node")), ""};
}

Line nodes_line(const JobFacts& job) {
  Line line{"ranks per node", Result::pass, "", ""};
  std::vector<std::string> crowded;
  std::vector<std::string> shared;
  std::int64_t fewest = std::ssize(job.ranks);
  std::int64_t most = 0;
  auto fewest_cores = std::numeric_limits<std::int64_t>::max();
  for (const auto& members : by_node(job.ranks)) {
    std::vector<Cpu> cpus;
    for (const auto* rank : members) {
      for (const auto& cpu : rank->cpus) {
        if (std::ranges::none_of(cpus, [&](const Cpu& other) { return other.cpu == cpu.cpu; })) {
          cpus.push_back(cpu);
        }
      }
    }
    const std::int64_t cores = std::ssize(cores_of(cpus));
    fewest = std::min<std::int64_t>(fewest, std::ssize(members));
    most = std::max<std::int64_t>(most, std::ssize(members));
    fewest_cores = std::min(fewest_cores, cores);
    const auto text = fmt::format("{} on {} of {}", count_text(std::ssize(members), "rank"), count_text(cores, "core"),
                                  members.front()->host);
    if (std::ssize(members) > std::ssize(cpus)) {
      crowded.push_back(text);
    } else if (std::ssize(members) > cores) {
      shared.push_back(text);
    }
  }
  const auto append = [&](Result result, const std::string& found, const std::string& remedy) {
    line.result = std::max(line.result, result);
    line.found += (line.found.empty() ? "" : "; ") + found;
    line.remedy += (line.remedy.empty() ? "" : "; ") + remedy;
  };
  if (!crowded.empty()) {
    append(Result::warn, "oversubscribed: " + base::join(crowded, ", "),
           "start fewer ranks a node, or ask for more cores: records of oversubscribed runs are not compared");
  }
  if (!shared.empty()) {
    append(Result::warn, "ranks share cores as hardware threads: " + base::join(shared, ", "),
           "start one rank a core at most (srun --hint=nomultithread, mpirun --map-by core)");
  }
  if (fewest != most) {
    append(Result::warn, fmt::format("{} to {} ranks a node", fewest, most),
           "give every node as many ranks (srun --ntasks-per-node, mpirun --map-by ppr:N:node): the fullest sets the pace");
  }
  if (line.found.empty()) {
    line.found = fmt::format("{} on {}", count_text(most, "rank"), count_text(fewest_cores, "core"));
  }
  return line;
}

}  // namespace

void check_launch(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(launcher_line(job.launcher));
  lines.push_back(world_line(job));
  lines.push_back(nodes_line(job));
}

}  // namespace shardmark::app::doctor
