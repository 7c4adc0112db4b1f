// NCCL's log is captured unless the user directs it himself. Each test in a process of its own, for a process has one log.

#include "comm/debug_log.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <string>

#include "base/environment.hpp"

namespace shardmark::comm {
namespace {

using base::environment_variable;

/// Ends the process: 0 if all is as it should be.
[[noreturn]] void end(bool right, const std::string& words = "") {
  std::fputs(words.c_str(), stderr);
  _Exit(right ? 0 : 1);
}

TEST(DebugLogDeathTest, CapturesWhatIsWrittenFromItsMakingOn) {
  EXPECT_EXIT(
      {
        const DebugLog first;
        // As NCCL does it.
        std::FILE* file = std::fopen(environment_variable("NCCL_DEBUG_FILE").value_or("").c_str(), "w");
        bool right = first.captured() && file != nullptr && environment_variable("NCCL_DEBUG") == "INFO" &&
                     environment_variable("NCCL_DEBUG_SUBSYS").value_or("").find("INIT") != std::string::npos;
        right = right && first.text().empty();
        const std::string one(100'000, '1');  // more than a part that is read at once
        std::fputs(one.c_str(), file);
        std::fflush(file);
        const DebugLog second;
        std::fputs("two\n", file);
        std::fflush(file);
        end(right && first.text() == one + "two\n" && second.captured() && second.text() == "two\n");
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(DebugLogDeathTest, TheUsersOwnSettingStays) {
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) {
    EXPECT_EXIT(
        {
          setenv(name, "user's", 1);
          const DebugLog log;
          bool right = !log.captured() && log.text().empty();
          for (const char* other : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) {
            right = right && environment_variable(other).has_value() == (std::string(other) == name);
          }
          end(right && environment_variable(name) == "user's", log.problem());
        },
        ::testing::ExitedWithCode(0), std::string(name) + " = \"user's\" directs");
  }
}

}  // namespace
}  // namespace shardmark::comm
