// What the launcher's variables mean before MPI is started.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "world/launcher.hpp"
#include "world/mpi_library.hpp"
#include "world/sides.hpp"
#include "world/world.hpp"

namespace shardmark::world {
namespace {

using Variables = std::map<std::string, std::string>;

/// An environment with these launcher variables and no others; the old one comes back at the end.
class LauncherVariables {
 public:
  explicit LauncherVariables(const Variables& values) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                             "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      before_[name] = base::environment_variable(name);
      const auto value = values.find(name);
      set(name, value == values.end() ? std::nullopt : std::optional(value->second));
    }
  }
  LauncherVariables(const LauncherVariables&) = delete;
  LauncherVariables& operator=(const LauncherVariables&) = delete;
  ~LauncherVariables() {
    for (const auto& [name, value] : before_) {
      set(name, value);
    }
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};

std::string refusal(const Variables& variables) {
  const LauncherVariables set(variables);
  try {
    check_launcher();
  } catch (const base::EnvironmentError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::environment);
    return error.what();
  }
  return "";
}

TEST(Launcher, AloneIsFine) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "1"}}), "");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "1"}, {"SLURM_NTASKS_PER_NODE", "1"}}), "");
}

TEST(Launcher, ManyTasksWithoutALauncherAreRefused) {
  const std::string message = refusal({{"SLURM_NTASKS", "4"}});
  EXPECT_NE(message.find("SLURM_NTASKS = 4"), std::string::npos);
  EXPECT_NE(message.find("rank 0 of 1"), std::string::npos);
  EXPECT_NE(message.find("mpirun"), std::string::npos);
}

TEST(Launcher, AnyLauncherVariableMakesItFine) {
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "4"}, {"PMIX_RANK", "0"}}), "");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "4"}, {"PMI_RANK", "0"}}), "");
}

TEST(Launcher, ContradictingTaskNumbersAreRefusedNamingBoth) {
  const std::string message = refusal({{"SLURM_NTASKS", "1"}, {"SLURM_NTASKS_PER_NODE", "2"}});
  EXPECT_NE(message.find("SLURM_NTASKS = 1"), std::string::npos);
  EXPECT_NE(message.find("SLURM_NTASKS_PER_NODE = 2"), std::string::npos);
}

TEST(Launcher, ItsSizeIsThatOfTheInnermostOne) {
  {
    const LauncherVariables set(Variables{});
    EXPECT_EQ(launcher_size().variable, "");
  }
  {
    const LauncherVariables set(Variables{{"SLURM_STEP_NUM_TASKS", "8"}});
    EXPECT_EQ(launcher_size().variable, "SLURM_STEP_NUM_TASKS");
    EXPECT_EQ(launcher_size().size, 8);
  }
  {
    const LauncherVariables set(Variables{{"SLURM_STEP_NUM_TASKS", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    EXPECT_EQ(launcher_size().size, 4);
  }
  {
    const LauncherVariables set(Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
    EXPECT_EQ(launcher_size().variable, "PMI_SIZE");
    EXPECT_EQ(launcher_size().size, 3);
  }
}

TEST(Launcher, IsNamedWithItsRankAndSize) {
  {
    const LauncherVariables set(Variables{});
    EXPECT_EQ(find_launcher().name, "");
    EXPECT_EQ(find_launcher().rank, -1);
  }
  {
    const LauncherVariables set(
        Variables{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}, {"SLURM_PROCID", "0"}});
    EXPECT_EQ(find_launcher().name, "mpirun of Open MPI");
    EXPECT_EQ(find_launcher().rank, 3);
    EXPECT_EQ(find_launcher().size, 4);
  }
  {
    const LauncherVariables set(Variables{{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "5"}});
    EXPECT_EQ(find_launcher().name, "srun with PMIx");
    EXPECT_EQ(find_launcher().rank, 5);
  }
  {  // MPICH's mpiexec
    const LauncherVariables set(Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
    EXPECT_EQ(find_launcher().size_variable, "PMI_SIZE");
    EXPECT_EQ(find_launcher().size, 2);
  }
  {  // srun --mpi=none
    const LauncherVariables set(Variables{{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}});
    EXPECT_EQ(find_launcher().name, "");
    EXPECT_EQ(find_launcher().rank, 1);
    ASSERT_TRUE(launcher_problem().has_value());
    EXPECT_NE(launcher_problem()->remedy.find("srun --mpi=pmix"), std::string::npos);
  }
}

TEST(MpiLibrary, IsNamedInShort) {
  EXPECT_EQ(short_mpi_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022"),
            "Open MPI 4.1.4");
  EXPECT_EQ(short_mpi_version("Open MPI v5.0.0rc12, package: x"), "Open MPI 5.0.0rc12");
  EXPECT_EQ(short_mpi_version("MPICH Version:      4.0.2\nMPICH Release date: Thu"), "MPICH 4.0.2");
  EXPECT_EQ(short_mpi_version("Intel(R) MPI Library 2021.9 for Linux* OS\n"), "Intel MPI 2021.9");
  EXPECT_EQ(short_mpi_version("Some MPI of ours, built today\n"), "Some MPI of ours");
}

TEST(Sides, EqualTextsAreNamedOnce) {
  EXPECT_EQ(sides_text({"a", "b", "a"}, {0, 1, 2}), "ranks 0, 2: a; rank 1: b");
  EXPECT_EQ(sides_text({"x"}, {7}), "rank 7: x");
}

}  // namespace
}  // namespace shardmark::world
