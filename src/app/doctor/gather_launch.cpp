// What the environment says: launcher, and variables that change results or speed.

#include <array>

#include "app/doctor/gather.hpp"
#include "base/environment.hpp"
#include "world/launcher.hpp"

namespace shardmark::app::doctor {

LauncherFacts gather_launcher() {
  LauncherFacts facts;
  try {
    const auto launcher = world::find_launcher();
    facts.name = launcher.name;
    facts.size_variable = launcher.size_variable;
    facts.size = launcher.size;
    facts.rank = launcher.rank;
    facts.srun_tasks = base::environment_number("SLURM_STEP_NUM_TASKS").value_or(-1);
    if (const auto problem = world::launcher_problem()) {
      facts.problem = problem->found;
      facts.remedy = problem->remedy;
    }
  } catch (const base::EnvironmentError& error) {  // a variable that is no number
    facts.problem = error.what();
    facts.remedy = "correct or unset the variable; launchers set it themselves";
  }
  return facts;
}

std::vector<std::pair<std::string, std::string>> gather_environment() {
  constexpr std::array<std::string_view, 16> prefixes{"NCCL_",
                                                      "OMPI_MCA_",
                                                      "MKL_",
                                                      "OMP_",
                                                      "KMP_",
                                                      "GOMP_",
                                                      "UCX_",
                                                      "CUDA_LAUNCH_BLOCKING",
                                                      "HDF5_",
                                                      "CUDA_VIS",
                                                      "CUDA_DEVICE",
                                                      "CUDA_MODULE",
                                                      "PYTORCH_CUDA",
                                                      "MALLOC_",
                                                      "SHARDMARK_FAULT",
                                                      "LD_PRELOAD"};
  return base::environment_by_prefix(prefixes);
}

}  // namespace shardmark::app::doctor
