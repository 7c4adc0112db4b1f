#pragma once
// What the launcher's variables say before MPI_Init, for commands that report on it. Needs no MPI.

#include <optional>
#include <string>

namespace shardmark::world {

struct Launcher {
  std::string name;           // "" if none of OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK is set
  std::string size_variable;  // "" if no variable tells the number of ranks
  long size = 0;
  long rank = -1;  // this process's rank by the launcher or, without one, by srun; -1 if nobody says
};
/// Pure function of the environment. Throws EnvironmentError if a variable is not a number.
[[nodiscard]] Launcher find_launcher();

struct LauncherProblem {
  std::string found;
  std::string remedy;
};
/// Why `check_launcher` refuses, if it does. Throws EnvironmentError if a variable is not a number.
[[nodiscard]] std::optional<LauncherProblem> launcher_problem();

}  // namespace shardmark::world
