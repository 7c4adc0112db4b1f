#pragma once
// The memory of a benchmark, and one case in it: laid out as a collective, filled, and checked.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "app/bench/cases.hpp"

namespace shardmark::app::bench {

/// Two buffers of so many bytes each, at multiples of 64.
class Memory {
 public:
  explicit Memory(std::int64_t bytes);
  [[nodiscard]] std::byte* first() { return first_.data()->bytes; }
  [[nodiscard]] std::byte* second() { return second_.data()->bytes; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> first_;
  std::vector<Line> second_;
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

  [[nodiscard]] const comm::Collective& collective() const { return collective_; }
  /// What a rank starts with in what it sends, and what is never a result in the rest of what it receives.
  void fill() const;
  /// Zeros everywhere: repeated sums in place stay finite, and all values are as fast as each other.
  void clear() const;
  /// After one call on what `fill` left: received elements that are wrong. 0 for a barrier.
  [[nodiscard]] std::int64_t count_wrong() const;
  /// Flips the lowest bit of element `element` of what was received, for a planted fault; wraps at the buffer's end.
  void flip_bit(std::int64_t element) const;

 private:
  [[nodiscard]] comm::Buffer part(comm::Buffer whole, int index) const;

  Place place_;
  comm::Collective collective_;
};

}  // namespace shardmark::app::bench
