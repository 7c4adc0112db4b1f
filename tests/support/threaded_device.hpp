#pragma once
// Host memory as a device whose computation, too, runs beside the caller: what is enqueued is done later and in order, so that
// work which does not wait for what it needs finds it missing.

#include <functional>
#include <memory>
#include <utility>

#include "device/host_device.hpp"

namespace shardmark::testing {

class ThreadedDevice final : public device::Device {
 public:
  /// Computation: done once what was enqueued before is.
  void compute(std::function<void()> work) {
    compute_.enqueue([work = std::move(work)](const std::stop_token& /*stopping*/) { work(); });
  }

  [[nodiscard]] int cuda_index() const override { return -1; }
  [[nodiscard]] bool asynchronous() const override { return true; }
  [[nodiscard]] device::Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<device::Stream> make_stream(device::Priority priority) override {
    return inner_->make_stream(priority);
  }
  [[nodiscard]] std::unique_ptr<device::Event> make_event() override { return inner_->make_event(); }
  [[nodiscard]] double seconds_between(device::Event& from, device::Event& to) override {
    return inner_->seconds_between(from, to);
  }
  [[nodiscard]] std::unique_ptr<device::Memory> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  [[nodiscard]] std::unique_ptr<device::Memory> allocate_pinned(std::size_t bytes) override {
    return inner_->allocate_pinned(bytes);
  }
  void read(void* into, const void* from, std::size_t bytes, const device::Poll& poll) override {
    synchronize(poll);
    inner_->read(into, from, bytes, poll);
  }
  void write(void* into, const void* from, std::size_t bytes, const device::Poll& poll) override {
    synchronize(poll);
    inner_->write(into, from, bytes, poll);
  }
  void synchronize(const device::Poll& poll) override {
    compute_.record(*done_);
    for (std::int64_t turn = 0; !done_->complete(); ++turn) {
      poll(turn);
      std::this_thread::yield();
    }
  }

 private:
  std::unique_ptr<device::Device> inner_ = device::make_host_device(true);
  std::unique_ptr<device::Event> done_ = inner_->make_event();
  device::HostStream compute_;  // last: its work names events
};

}  // namespace shardmark::testing
