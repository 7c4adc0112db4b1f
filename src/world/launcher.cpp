// What the launcher's environment says before MPI is started. Needs no MPI.

#include <fmt/format.h>

#include <array>

#include "base/environment.hpp"
#include "world/world.hpp"

namespace shardmark::world {
namespace {

bool launched() {
  constexpr std::array<const char*, 3> kVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (const char* name : kVariables) {
    if (base::environment_variable(name)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void check_launcher() {
  if (launched()) {
    return;
  }
  const auto tasks = base::environment_number("SLURM_NTASKS");
  const auto per_node = base::environment_number("SLURM_NTASKS_PER_NODE");
  if (tasks && *tasks > 1) {
    throw base::EnvironmentError(
        fmt::format("SLURM_NTASKS = {}, but no MPI launcher started this process (none of OMPI_COMM_WORLD_SIZE, PMIX_RANK, "
                    "PMI_RANK is set): it would run alone as rank 0 of 1. Start it with mpirun, or with srun --mpi=pmix; "
                    "unset SLURM_NTASKS if one rank is meant",
                    *tasks));
  }
  if (tasks && per_node && *per_node > *tasks) {
    throw base::EnvironmentError(
        fmt::format("SLURM_NTASKS = {} contradicts SLURM_NTASKS_PER_NODE = {}, and no MPI launcher started this process: it "
                    "would run alone as rank 0 of 1. Start it with mpirun, or with srun --mpi=pmix; unset "
                    "SLURM_NTASKS_PER_NODE if one rank is meant",
                    *tasks, *per_node));
  }
}

LauncherSize launcher_size() {
  // mpirun inside a Slurm job leaves srun's variables of its daemons behind, so its own come first.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const auto size = base::environment_number(name)) {
      return {name, static_cast<int>(*size)};
    }
  }
  return {};
}

}  // namespace shardmark::world
