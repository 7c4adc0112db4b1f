#pragma once
// Reads a device's state at intervals, in a thread that sleeps in between: its cost belongs to no step. Knows no record and no
// library: what is read is a DeviceState.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device_state.hpp"

namespace shardmark::device {

struct TelemetrySample {
  double time_s = 0;  // since the sampler started
  DeviceReading reading;
};

struct SamplerOptions {
  std::chrono::milliseconds period{1000};
  /// Beyond this every second sample is dropped and the period doubles, so that long runs stay small: half an hour by seconds.
  std::size_t max_samples = 1800;
};

class TelemetrySampler {
 public:
  /// Reads at once, then each period. `device` is lent until stop() or destruction.
  explicit TelemetrySampler(DeviceState& device, SamplerOptions options = {});
  TelemetrySampler(const TelemetrySampler&) = delete;
  TelemetrySampler& operator=(const TelemetrySampler&) = delete;
  ~TelemetrySampler() = default;

  /// Reads a last time, ends the thread and returns all samples. A second call returns none.
  [[nodiscard]] std::vector<TelemetrySample> stop();

 private:
  void sample(std::stop_token stopped);
  void add();

  DeviceState& device_;
  SamplerOptions options_;
  double start_s_;
  std::vector<TelemetrySample> samples_;  // of the thread, until it has ended
  std::mutex mutex_;
  std::condition_variable_any asked_to_stop_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace shardmark::device
