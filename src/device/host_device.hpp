#pragma once
// Host memory as a device: computation runs in the caller, further streams are threads that work off what is enqueued in order.
// What is built on streams and events behaves here as on a CUDA device, but for speed.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "device/device.hpp"

namespace shardmark::device {

/// One thread. Work may ask `stopping` while it waits for others: the stream's destructor does not wait for it then.
class HostStream final : public Stream {
 public:
  using Work = std::function<void(const std::stop_token& stopping)>;

  HostStream();
  /// Abandons what has not begun.
  ~HostStream() override;

  /// Returns at once. Work must not throw.
  void enqueue(Work work);
  void record(Event& event) override;
  void wait(Event& event, const Poll& poll) override;
  [[nodiscard]] void* handle() override { return this; }
  [[nodiscard]] bool on_host() const override { return true; }

 private:
  void run(const std::stop_token& stopping);

  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::deque<Work> queue_;
  std::jthread thread_;  // last: it uses the others
};

/// `asynchronous`: as a device whose results the host reads by `read` only.
[[nodiscard]] std::unique_ptr<Device> make_host_device(bool asynchronous = false);

}  // namespace shardmark::device
