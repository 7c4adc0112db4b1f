#pragma once
// The memory of a benchmark, and one case in it: laid out as a collective, filled, and checked.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "app/bench/cases.hpp"
#include "device/device.hpp"

namespace shardmark::app::bench {

/// Two buffers of so many bytes each, at multiples of 64, and on a CUDA device two more there: collectives move those, and what
/// is written and looked at are the host's.
class Memory {
 public:
  /// The device is lent.
  Memory(std::int64_t bytes, device::Device& device);
  [[nodiscard]] std::byte* first() { return first_.data()->bytes; }
  [[nodiscard]] std::byte* second() { return second_.data()->bytes; }
  /// The same place in what collectives move.
  [[nodiscard]] comm::Buffer moved(comm::Buffer on_host);
  /// Copies one of the host's buffers to the device, or back. Nothing in host memory.
  void upload(const comm::Buffer& on_host);
  void download(const comm::Buffer& on_host);

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  [[nodiscard]] std::byte* on_device(const void* on_host);

  std::vector<Line> first_;
  std::vector<Line> second_;
  device::Device& device_;
  std::unique_ptr<device::Memory> first_on_device_;
  std::unique_ptr<device::Memory> second_on_device_;
};

/// Where a rank stands.
struct Place {
  int rank = 0;  // in the group
  int size = 1;
  std::uint64_t salt = 0;  // unlike for groups that run at the same time, so that no value of another one passes
};

/// A case in memory.
class Trial {
 public:
  /// `memory` holds at least the message, and is lent.
  Trial(Memory& memory, const Case& the_case, const Place& place, comm::SumOrder order);

  /// To be started: of device memory on a device.
  [[nodiscard]] const comm::Collective& collective() const { return moved_; }
  /// What a rank starts with in what it sends, and what is never a result in the rest of what it receives.
  void fill() const;
  /// Zeros everywhere: repeated sums in place stay finite, and all values are as fast as each other.
  void clear() const;
  /// After the call has ended: what was received is there for the next two.
  void fetch() const;
  /// After one call on what `fill` left: received elements that are wrong. 0 for a barrier.
  [[nodiscard]] std::int64_t count_wrong() const;
  /// Flips the lowest bit of element `element` of what was received, for a planted fault; wraps at the buffer's end.
  void flip_bit(std::int64_t element) const;

 private:
  [[nodiscard]] comm::Buffer part(comm::Buffer whole, int index) const;

  void fill_on_host() const;
  void upload() const;

  Memory& memory_;
  Place place_;
  comm::Collective collective_;  // of host memory
  comm::Collective moved_;
};

}  // namespace shardmark::app::bench
