// A step's numbers and times, as the host finds them when it reads a block of steps.

#include "train/deferred_steps.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/self_communicator.hpp"
#include "device/host_device.hpp"
#include "tests/support/threaded_device.hpp"

namespace shardmark::testing {
namespace {

class Deferred : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMicroSteps = 2;

  /// A part of a step: takes at least so long.
  void part(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    steps_.mark();
  }
  /// Loading 2, forward 4, backward 8 ms a micro-step, reductions 16, update 32.
  void run_step(double loss) {
    auto* scalars = steps_.begin_step();
    EXPECT_EQ(scalars->squares, 0) << "what an earlier step left";
    for (std::int64_t micro = 0; micro < kMicroSteps; ++micro) {
      part(2);
      part(4);
      part(8);
    }
    scalars->loss = loss;
    scalars->squares = 7;
    part(16);
    part(32);
  }

  std::unique_ptr<device::Device> device_ = device::make_host_device(true);
  comm::SelfCommunicator self_{"self"};
  train::DeferredSteps steps_{*device_, self_, 2, kMicroSteps};
};

TEST_F(Deferred, EachPartHasItsTimeAndTogetherTheyAreTheStep) {
  run_step(1);
  run_step(2);
  const auto found = steps_.collect();
  ASSERT_EQ(found.size(), 2U);
  for (const auto& [scalars, times] : found) {
    EXPECT_GE(times.data_s, 0.004);
    EXPECT_GE(times.forward_s, 0.008);
    EXPECT_GE(times.backward_s, 0.032);
    EXPECT_GE(times.optimizer_s, 0.032);
    // Each of the twelve readings is rounded to the clock's unit in the last place, below 1e-9 s for a clock below 2^22 s; so
    // are the sums.
    EXPECT_NEAR(times.total_s, times.data_s + times.forward_s + times.backward_s + times.optimizer_s, 24e-9);
  }
  EXPECT_EQ(found[0].scalars.loss, 1);
  EXPECT_EQ(found[1].scalars.loss, 2);
}

TEST_F(Deferred, ANewBlockStartsWithZerosAndAtItsOwnTime) {
  run_step(1);
  static_cast<void>(steps_.collect());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // between blocks: nobody's time
  steps_.start_block();
  run_step(2);
  const auto found = steps_.collect();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_LT(found[0].times.data_s, 0.5);
  EXPECT_EQ(found[0].scalars.loss, 2);
}

TEST(DeferredAhead, TheHostIsNeverMoreThanTwoStepsAhead) {
  ThreadedDevice device;
  comm::SelfCommunicator self{"self"};
  train::DeferredSteps steps{device, self, 6, 1};
  std::atomic<int> done{0};
  for (int step = 0; step < 6; ++step) {
    static_cast<void>(steps.begin_step());
    EXPECT_GE(done.load(), step - 1) << "steps done when step " << step << " begins";
    for (int part = 0; part < 4; ++part) {
      steps.mark();
    }
    device.compute([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++done;
    });
    steps.mark();
  }
  device.synchronize([](std::int64_t /*turn*/) {});
}

TEST(DeferredAhead, TheHostGoesOnWhileAStepIsUnderWay) {
  ThreadedDevice device;
  comm::SelfCommunicator self{"self"};
  train::DeferredSteps steps{device, self, 2, 1};
  std::atomic<bool> went_on{false};
  std::atomic<bool> in_time{false};
  static_cast<void>(steps.begin_step());
  device.compute([&] {
    for (int turn = 0; turn < 2000 && !went_on.load(); ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    in_time = went_on.load();
  });
  for (int part = 0; part < 5; ++part) {
    steps.mark();
  }
  static_cast<void>(steps.begin_step());
  went_on = true;
  device.synchronize([](std::int64_t /*turn*/) {});
  EXPECT_TRUE(in_time.load()) << "the second step waited for the end of the first";
}

}  // namespace
}  // namespace shardmark::testing
