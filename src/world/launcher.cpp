// What the launcher's environment says before MPI is started. Needs no MPI.

#include "world/launcher.hpp"

#include <fmt/format.h>

#include <array>

#include "base/environment.hpp"
#include "world/world.hpp"

namespace shardmark::world {
namespace {

constexpr const char* kStart = "Start it with mpirun, or with srun --mpi=pmix; unset {} if one rank is meant";

bool is_set(const char* name) {
  return base::environment_variable(name).has_value();
}

std::string launcher_name() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) {
    return "mpirun of Open MPI";
  }
  if (is_set("PMIX_RANK")) {
    return is_set("SLURM_STEP_NUM_TASKS") ? "srun with PMIx" : "a launcher with PMIx";
  }
  if (is_set("PMI_RANK")) {
    return is_set("SLURM_STEP_NUM_TASKS") ? "srun with PMI" : "a launcher with PMI";
  }
  return "";
}

}  // namespace

std::optional<LauncherProblem> launcher_problem() {
  if (!launcher_name().empty()) {
    return std::nullopt;
  }
  const auto tasks = base::environment_number("SLURM_NTASKS");
  const auto per_node = base::environment_number("SLURM_NTASKS_PER_NODE");
  if (tasks && *tasks > 1) {
    return LauncherProblem{fmt::format("SLURM_NTASKS = {}, but no MPI launcher started this process (none of "
                                       "OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK is set): it would run alone as rank 0 of 1",
                                       *tasks),
                           fmt::format(fmt::runtime(kStart), "SLURM_NTASKS")};
  }
  if (tasks && per_node && *per_node > *tasks) {
    return LauncherProblem{fmt::format("SLURM_NTASKS = {} contradicts SLURM_NTASKS_PER_NODE = {}, and no MPI launcher started "
                                       "this process: it would run alone as rank 0 of 1",
                                       *tasks, *per_node),
                           fmt::format(fmt::runtime(kStart), "SLURM_NTASKS_PER_NODE")};
  }
  return std::nullopt;
}

void check_launcher() {
  if (const auto problem = launcher_problem()) {
    throw base::EnvironmentError(problem->found + ". " + problem->remedy);
  }
}

LauncherSize launcher_size() {
  // mpirun inside a Slurm job leaves srun's variables of its daemons behind, so its own come first. A launcher with PMI alone
  // is of another MPI: under this one each process would be rank 0 of 1.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"}) {
    if (const auto size = base::environment_number(name)) {
      return {name, static_cast<int>(*size)};
    }
  }
  return {};
}

Launcher find_launcher() {
  Launcher found;
  found.name = launcher_name();
  const auto size = launcher_size();
  found.size_variable = size.variable;
  found.size = size.size;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto rank = base::environment_number(name)) {
      found.rank = *rank;
      break;
    }
  }
  return found;
}

}  // namespace shardmark::world
