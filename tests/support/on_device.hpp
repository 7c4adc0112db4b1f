#pragma once
// The fixture of tests that need a device: they skip with a reason where there is none.

#include <gtest/gtest.h>

#include <string>

#include "tests/support/device_memory.hpp"

namespace shardmark::testing {

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

}  // namespace shardmark::testing
