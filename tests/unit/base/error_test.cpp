// Error classes, their exit codes (a contract with scripts) and messages.

#include "base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace shardmark::base {
namespace {

TEST(ExitCode, NumbersAreAContract) {
  EXPECT_EQ(static_cast<int>(ExitCode::good), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::failed), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::usage), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::regression), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::inconclusive), 4);
  EXPECT_EQ(static_cast<int>(ExitCode::environment), 5);
  EXPECT_EQ(static_cast<int>(ExitCode::out_of_memory), 6);
  EXPECT_EQ(static_cast<int>(ExitCode::deadline), 7);
  EXPECT_EQ(static_cast<int>(ExitCode::wrong_result), 8);
  EXPECT_EQ(static_cast<int>(ExitCode::mismatch), 9);
  EXPECT_EQ(static_cast<int>(ExitCode::io), 10);
  EXPECT_EQ(static_cast<int>(ExitCode::stopped), 75);
}

TEST(ExitCode, EveryOneHasAName) {
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 75}) {
    EXPECT_NE(name_of(static_cast<ExitCode>(code)), "unknown") << code;
  }
  EXPECT_EQ(name_of(static_cast<ExitCode>(42)), "unknown");
}

TEST(Error, ClassesEndInTheirCodes) {
  EXPECT_EQ(exit_code_of(ConfigError("x")), ExitCode::usage);
  EXPECT_EQ(exit_code_of(DataError("x")), ExitCode::usage);
  EXPECT_EQ(exit_code_of(EnvironmentError("x")), ExitCode::environment);
  EXPECT_EQ(exit_code_of(MemoryError("x")), ExitCode::out_of_memory);
  EXPECT_EQ(exit_code_of(DeadlineError("x")), ExitCode::deadline);
  EXPECT_EQ(exit_code_of(NumericsError("x")), ExitCode::wrong_result);
  EXPECT_EQ(exit_code_of(MismatchError("x")), ExitCode::mismatch);
  EXPECT_EQ(exit_code_of(IoError("x")), ExitCode::io);
  EXPECT_EQ(exit_code_of(InvariantError("x")), ExitCode::failed);
  EXPECT_EQ(exit_code_of(RemoteError(ExitCode::deadline, "x")), ExitCode::deadline);
  EXPECT_EQ(exit_code_of(std::bad_alloc()), ExitCode::out_of_memory);
  EXPECT_EQ(exit_code_of(std::runtime_error("x")), ExitCode::failed);
}

TEST(Error, ConfigErrorListsEveryProblem) {
  EXPECT_STREQ(ConfigError("one thing").what(), "one thing");
  const ConfigError error(std::vector<std::string>{"first", "second", "third"});
  EXPECT_STREQ(error.what(), "3 problems:\n  - first\n  - second\n  - third");
  EXPECT_THAT(error.problems(), ::testing::ElementsAre("first", "second", "third"));
}

TEST(Error, BrokenInvariantNamesItsPlace) {
  const int value = 3;
  EXPECT_THAT([&] { SM_CHECK(value == 4, "the value is " + std::to_string(value)); },
              ::testing::ThrowsMessage<InvariantError>(::testing::AllOf(::testing::HasSubstr("the value is 3"),
                                                                        ::testing::HasSubstr("value == 4"),
                                                                        ::testing::HasSubstr("error_test.cpp:"))));
  EXPECT_NO_THROW(SM_CHECK(value == 3, "never evaluated"));
}

}  // namespace
}  // namespace shardmark::base
