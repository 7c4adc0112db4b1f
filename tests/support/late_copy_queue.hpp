#pragma once
// A queue of copies that holds what callers may rely on, and nothing more: bytes move when a copy is waited for, and until then
// the destination holds NaNs of every type.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "device/copy_queue.hpp"

namespace shardmark::testing {

class LateCopyQueue final : public device::CopyQueue {
 public:
  device::CopyTicket start(void* into, const void* from, std::size_t bytes) override {
    for (const auto& [ticket, copy] : under_way_) {
      EXPECT_FALSE(overlap(into, bytes, copy.into, copy.bytes)) << "two copies into one place";
      EXPECT_FALSE(overlap(into, bytes, copy.from, copy.bytes)) << "a copy into what another still reads";
      EXPECT_FALSE(overlap(from, bytes, copy.into, copy.bytes)) << "a copy of what is not there yet";
    }
    if (bytes > 0) {
      std::memset(into, 0xFF, bytes);
    }
    most_ = std::max(most_, under_way_.size() + 1);
    under_way_[++last_] = {into, from, bytes};
    return device::CopyTicket{last_};
  }
  void wait(device::CopyTicket ticket) override {
    const auto found = under_way_.find(static_cast<std::uint64_t>(ticket));
    ASSERT_NE(found, under_way_.end()) << "waited for twice, or never started";
    if (found->second.bytes > 0) {
      std::memcpy(found->second.into, found->second.from, found->second.bytes);
    }
    under_way_.erase(found);
  }

  /// The largest number of copies that were under way at once.
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  struct Copy {
    void* into;
    const void* from;
    std::size_t bytes;
  };

  static bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    const auto* first = static_cast<const char*>(a);
    const auto* second = static_cast<const char*>(b);
    return a_bytes > 0 && b_bytes > 0 && first < second + b_bytes && second < first + a_bytes;
  }

  std::map<std::uint64_t, Copy> under_way_;
  std::uint64_t last_ = 0;
  std::size_t most_ = 0;
};

inline std::unique_ptr<device::CopyQueue> make_late_copy_queue() {
  return std::make_unique<LateCopyQueue>();
}

}  // namespace shardmark::testing
