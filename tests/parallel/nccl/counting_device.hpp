#pragma once
// A device that counts what the host asks of it: waits, allocations, streams and events made. Under a number of CUDA's it is to
// callers a device with memory of its own, which they reach by copies alone.

#include <cstdint>
#include <memory>

#include "device/host_device.hpp"

namespace shardmark::testing {

/// Of DeferredSteps, with one micro-step: loading, forward, backward, reductions, update.
inline constexpr std::int64_t kMarksPerStep = 5;

struct DeviceCounts {
  std::int64_t waits = 0;
  std::int64_t allocations = 0;
  std::int64_t streams = 0;
  std::int64_t events = 0;
};

class CountingDevice final : public device::Device {
 public:
  explicit CountingDevice(int cuda_index = -1) : cuda_index_(cuda_index) {}

  [[nodiscard]] const DeviceCounts& counts() const { return counts_; }

  [[nodiscard]] int cuda_index() const override { return cuda_index_; }
  [[nodiscard]] bool asynchronous() const override { return inner_->asynchronous(); }
  [[nodiscard]] device::Stream& compute() override { return inner_->compute(); }
  [[nodiscard]] std::unique_ptr<device::Stream> make_stream(device::Priority priority) override {
    ++counts_.streams;
    return inner_->make_stream(priority);
  }
  [[nodiscard]] std::unique_ptr<device::Event> make_event() override {
    ++counts_.events;
    return inner_->make_event();
  }
  [[nodiscard]] double seconds_between(device::Event& from, device::Event& to) override {
    return inner_->seconds_between(from, to);
  }
  [[nodiscard]] std::unique_ptr<device::Memory> allocate(std::size_t bytes) override {
    ++counts_.allocations;
    return inner_->allocate(bytes);
  }
  [[nodiscard]] std::unique_ptr<device::Memory> allocate_pinned(std::size_t bytes) override {
    ++counts_.allocations;
    return inner_->allocate_pinned(bytes);
  }
  void read(void* into, const void* from, std::size_t bytes, const device::Poll& poll) override {
    ++counts_.waits;
    inner_->read(into, from, bytes, poll);
  }
  void write(void* into, const void* from, std::size_t bytes, const device::Poll& poll) override {
    ++counts_.waits;
    inner_->write(into, from, bytes, poll);
  }
  void synchronize(const device::Poll& poll) override {
    ++counts_.waits;
    inner_->synchronize(poll);
  }
  void enter_thread() override { inner_->enter_thread(); }

 private:
  int cuda_index_;
  std::unique_ptr<device::Device> inner_ = device::make_host_device(true);
  DeviceCounts counts_;
};

}  // namespace shardmark::testing
