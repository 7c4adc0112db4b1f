// Reading the environment, and what of it a record may carry.

#include "base/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::base {
namespace {

/// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Environment, EmptyIsNotSet) {
  EXPECT_EQ(environment_variable("SHARDMARK_TEST_NONE"), std::nullopt);
  const Variable empty("SHARDMARK_TEST_EMPTY", "");
  EXPECT_EQ(environment_variable("SHARDMARK_TEST_EMPTY"), std::nullopt);
  EXPECT_EQ(environment_number("SHARDMARK_TEST_EMPTY"), std::nullopt);
  const Variable set("SHARDMARK_TEST_SET", " x=y ");
  EXPECT_EQ(environment_variable("SHARDMARK_TEST_SET"), " x=y ");
}

TEST(Environment, WhatIsSetIsRead) {
  const Variable before("SHARDMARK_TEST_SET", "old");
  set_environment_variable("SHARDMARK_TEST_SET", "new");
  EXPECT_EQ(environment_variable("SHARDMARK_TEST_SET"), "new");
  try {
    set_environment_variable("SHARDMARK=TEST", "x");
    FAIL() << "no such name can be set";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("SHARDMARK=TEST cannot be set"));
  }
}

TEST(Environment, Numbers) {
  const auto number = [](const char* text) {
    const Variable variable("SHARDMARK_TEST_NUMBER", text);
    return environment_number("SHARDMARK_TEST_NUMBER");
  };
  EXPECT_EQ(environment_number("SHARDMARK_TEST_NUMBER"), std::nullopt);
  EXPECT_EQ(number("12"), 12);
  EXPECT_EQ(number("-3"), -3);
  for (const char* wrong : {"two", "4x", "1.5", "1 2"}) {
    EXPECT_THAT([&] { static_cast<void>(number(wrong)); },
                ::testing::ThrowsMessage<EnvironmentError>(
                    ::testing::AllOf(::testing::HasSubstr("SHARDMARK_TEST_NUMBER"), ::testing::HasSubstr(wrong))));
  }
}

TEST(Environment, RecordsTuningButNoSecrets) {
  const Variable threads("OMP_TEST_THREADS", "3=x");
  const Variable nccl("NCCL_TEST", "1");
  const Variable key("NCCL_API_KEY", "hidden");
  const Variable token("SLURM_JOB_TOKEN", "hidden");
  const Variable password("OMPI_MCA_PASSWORD", "hidden");
  const Variable secret("UCX_SECRET", "hidden");
  const Variable credentials("SLURM_JOB_CREDENTIALS", "hidden");
  const Variable other("SHARDMARK_TEST_OTHER", "hidden");
  const auto recorded = recorded_environment();
  EXPECT_THAT(recorded, ::testing::Contains(::testing::Pair("OMP_TEST_THREADS", "3=x")));
  EXPECT_THAT(recorded, ::testing::Contains(::testing::Pair("NCCL_TEST", "1")));
  for (const auto& [name, value] : recorded) {
    EXPECT_NE(value, "hidden") << name;
  }
  EXPECT_TRUE(std::ranges::is_sorted(recorded));
}

}  // namespace
}  // namespace shardmark::base
