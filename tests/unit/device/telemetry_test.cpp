// The sampler on a stand-in for a device: what it keeps, that it thins long runs out, that it ends at once.

#include "device/telemetry.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.hpp"

namespace shardmark::device {
namespace {

using std::chrono::milliseconds;

/// Counts readings; power is the number of the reading.
class CountingDevice final : public DeviceState {
 public:
  DeviceReading read() override {
    const std::lock_guard guard(mutex_);
    DeviceReading reading;
    reading.power_w = ++readings_;
    read_.notify_all();
    return reading;
  }
  double energy_j() override { return kNotTold; }
  std::vector<HealthCounter> health() override { return {}; }

  /// False if it takes longer than any machine should.
  bool wait_for(int readings) {
    std::unique_lock lock(mutex_);
    return read_.wait_for(lock, std::chrono::seconds(20), [&] { return readings_ >= readings; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable read_;
  int readings_ = 0;
};

TEST(Telemetry, ReadsAtTheStartAndAtTheEnd) {
  CountingDevice device;
  TelemetrySampler sampler(device, {.period = std::chrono::hours(1)});
  ASSERT_TRUE(device.wait_for(1));
  const double before = base::now_s();
  const auto samples = sampler.stop();
  EXPECT_LT(base::now_s() - before, 60) << "it does not sit its period out";
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].reading.power_w, 1);
  EXPECT_EQ(samples[1].reading.power_w, 2);
  EXPECT_GE(samples[0].time_s, 0);
  EXPECT_GT(samples[1].time_s, samples[0].time_s);
  EXPECT_TRUE(sampler.stop().empty());
}

TEST(Telemetry, ReadsEachPeriod) {
  CountingDevice device;
  TelemetrySampler sampler(device, {.period = milliseconds(1)});
  ASSERT_TRUE(device.wait_for(20));
  const auto samples = sampler.stop();
  ASSERT_GE(samples.size(), 20U);
  for (std::size_t i = 1; i + 1 < samples.size(); ++i) {
    // It sleeps a period at least; the last one comes when it is asked to end.
    EXPECT_GE(samples[i].time_s - samples[i - 1].time_s, 1e-3 - 1e-6) << i;
  }
}

TEST(Telemetry, ALongRunIsThinnedOut) {
  CountingDevice device;
  TelemetrySampler sampler(device, {.period = milliseconds(1), .max_samples = 8});
  ASSERT_TRUE(device.wait_for(30));
  const auto samples = sampler.stop();
  EXPECT_LE(samples.size(), 8U);
  EXPECT_GE(samples.size(), 5U) << "half of them stay, and one is added";
  EXPECT_EQ(samples.front().reading.power_w, 1) << "the first stays";
  EXPECT_GE(samples.back().reading.power_w, 31) << "the last is there";
  for (std::size_t i = 1; i < samples.size(); ++i) {
    EXPECT_GT(samples[i].time_s, samples[i - 1].time_s);
  }
}

TEST(Telemetry, EndsWithItsOwner) {
  CountingDevice device;
  {
    const TelemetrySampler sampler(device, {.period = std::chrono::hours(1)});
    ASSERT_TRUE(device.wait_for(1));
  }
  EXPECT_TRUE(device.wait_for(2)) << "its thread has ended: a later reading would use a device that is gone";
}

}  // namespace
}  // namespace shardmark::device
