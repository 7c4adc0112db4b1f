// The main program of tests under mpirun: one World, the report of rank 0, failures of any rank, and an exit code that is
// the largest of all ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <span>
#include <string>

#include "base/log.hpp"
#include "tests/support/ranks.hpp"

namespace {

shardmark::world::World* the_world = nullptr;

/// On ranks other than 0: failures only. The name is kept from the start of the test: asking the framework for it while it
/// reports a failure would wait for a lock that it holds.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override { name_ = std::string(test.test_suite_name()) + "." + test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      std::cerr << "[rank " << the_world->rank() << "] " << name_ << ": "
                << (result.file_name() == nullptr ? "unknown file" : result.file_name()) << ':' << result.line_number() << ": "
                << result.message() << std::endl;
    }
  }

 private:
  std::string name_;
};

/// After a failed wait no rank can follow the others any more: the job ends instead of failing test by test.
class StopAfterFailure final : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    if (the_world->failed()) {
      shardmark::base::log_error("the ranks have lost each other: no further test can run");
      the_world->abort(shardmark::base::ExitCode::failed);
    }
  }
};

int largest_of_all_ranks(int code) {
  int most = code;
  for (const auto& bytes : the_world->all_gather(std::as_bytes(std::span(&code, 1)))) {
    int theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    most = std::max(most, theirs);
  }
  return most;
}

}  // namespace

namespace shardmark::testing {

world::World& test_world() {
  return *the_world;
}

}  // namespace shardmark::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A rank that fails leaves the others waiting: they notice after this.
  shardmark::world::World world({.init_deadline_s = 60, .deadline_s = 30});
  the_world = &world;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  listeners.Append(new StopAfterFailure);
  try {
    return largest_of_all_ranks(RUN_ALL_TESTS());
  } catch (const std::exception& error) {
    shardmark::base::log_error(error.what());
    world.abort(shardmark::base::exit_code_of(error));
  }
}
