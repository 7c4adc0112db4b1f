// What the launcher's variables mean before MPI is started.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "world/sides.hpp"
#include "world/world.hpp"

namespace shardmark::world {
namespace {

using Variables = std::map<std::string, std::string>;

/// An environment with these launcher variables and no others; the old one comes back at the end.
class LauncherVariables {
 public:
  explicit LauncherVariables(const Variables& values) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"}) {
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
}

TEST(Sides, EqualTextsAreNamedOnce) {
  EXPECT_EQ(sides_text({"a", "b", "a"}, {0, 1, 2}), "ranks 0, 2: a; rank 1: b");
  EXPECT_EQ(sides_text({"x"}, {7}), "rank 7: x");
}

}  // namespace
}  // namespace shardmark::world
