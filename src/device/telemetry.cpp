#include "device/telemetry.hpp"

#include <utility>

#include "base/clock.hpp"

namespace shardmark::device {

TelemetrySampler::TelemetrySampler(DeviceState& device, SamplerOptions options)
    : device_(device),
      options_(options),
      start_s_(base::now_s()),
      thread_([this](std::stop_token stopped) { sample(stopped); }) {}

void TelemetrySampler::sample(std::stop_token stopped) {
  add();  // however soon it is asked to stop
  while (true) {
    {
      std::unique_lock lock(mutex_);
      asked_to_stop_.wait_for(lock, stopped, options_.period, [] { return false; });
    }
    const bool last = stopped.stop_requested();
    add();
    if (last) {
      return;
    }
  }
}

void TelemetrySampler::add() {
  if (samples_.size() >= options_.max_samples) {
    // The first, third, ... stay: distances double, as does the period.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < samples_.size(); i += 2) {
      samples_[kept++] = samples_[i];
    }
    samples_.resize(kept);
    options_.period *= 2;
  }
  const double time_s = base::now_s() - start_s_;
  samples_.push_back({time_s, device_.read()});
}

std::vector<TelemetrySample> TelemetrySampler::stop() {
  if (!thread_.joinable()) {
    return {};
  }
  thread_.request_stop();
  thread_.join();
  return std::exchange(samples_, {});
}

}  // namespace shardmark::device
