#pragma once
// Collectives of device memory over a communicator of host memory, by copies: where ranks share a device, or there is no NCCL
// between them. Every operation is complete when `start` returns; right, and slow.

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace shardmark::comm {

class StagedCommunicator final : public Communicator {
 public:
  /// The device is lent.
  StagedCommunicator(std::unique_ptr<Communicator> host, device::Device& device);

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  [[nodiscard]] const std::string& name() const override { return host_->name(); }
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override {}
  /// Operations end within `start`.
  [[nodiscard]] bool needs_one_order() const override { return true; }
  void read(void* into, const void* from, std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  /// Room in pinned memory for a copy of a buffer, by the number of the buffer within an operation.
  [[nodiscard]] Buffer staged(const Buffer& buffer, std::unique_ptr<device::Memory>& memory);

  std::unique_ptr<Communicator> host_;
  device::Device& device_;
  std::unique_ptr<device::Memory> sent_;
  std::unique_ptr<device::Memory> received_;
  Ticket issued_ = 0;
};

}  // namespace shardmark::comm
