#pragma once
// A queue of copies that holds what callers may rely on, and nothing more: bytes move when a copy is waited for, and until then
// the destination holds NaNs of every type. Either side of a copy is memory that was lent.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "device/copy_queue.hpp"

namespace shardmark::testing {

class LateCopyQueue final : public device::CopyQueue {
 public:
  void lend(void* data, std::size_t bytes) override {
    if (std::exchange(refuses_, false)) {
      throw base::MemoryError("planted: memory that cannot be lent");
    }
    for (const auto& [other, other_bytes] : lent_) {
      EXPECT_FALSE(overlap(page_of(data), bytes_of_pages(data, bytes), page_of(other), bytes_of_pages(other, other_bytes)))
          << "two that are lent share a page";
    }
    EXPECT_TRUE(lent_.emplace(data, bytes).second) << "lent twice";
  }
  void take_back(void* data) override {
    const auto found = lent_.find(data);
    ASSERT_NE(found, lent_.end()) << "taken back, but not lent";
    for (const auto& [ticket, copy] : under_way_) {
      EXPECT_FALSE(overlap(data, found->second, copy.into, copy.bytes) || overlap(data, found->second, copy.from, copy.bytes))
          << "taken back while a copy is under way";
    }
    lent_.erase(found);
  }
  device::CopyTicket start(void* into, const void* from, std::size_t bytes) override {
    for (const auto& [ticket, copy] : under_way_) {
      EXPECT_FALSE(overlap(into, bytes, copy.into, copy.bytes)) << "two copies into one place";
      EXPECT_FALSE(overlap(into, bytes, copy.from, copy.bytes)) << "a copy into what another still reads";
      EXPECT_FALSE(overlap(from, bytes, copy.into, copy.bytes)) << "a copy of what is not there yet";
    }
    EXPECT_TRUE(bytes == 0 || is_lent(into, bytes) || is_lent(from, bytes)) << "a copy of what was not lent";
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
  [[nodiscard]] std::size_t lent_bytes() const {
    std::size_t sum = 0;
    for (const auto& [data, bytes] : lent_) {
      sum += bytes;
    }
    return sum;
  }
  /// The next memory cannot be lent.
  void refuse_to_lend() { refuses_ = true; }

 private:
  static constexpr std::size_t kPage = 4096;
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

  static const char* end_of(const void* data, std::size_t bytes) { return static_cast<const char*>(data) + bytes; }
  static const char* page_of(const void* data) {
    const auto* at = static_cast<const char*>(data);
    return at - reinterpret_cast<std::uintptr_t>(at) % kPage;
  }
  static std::size_t bytes_of_pages(const void* data, std::size_t bytes) {
    return static_cast<std::size_t>(page_of(end_of(data, bytes + kPage - 1)) - page_of(data));
  }
  [[nodiscard]] bool is_lent(const void* data, std::size_t bytes) const {
    const auto holds = [&](const auto& one) {
      return data >= one.first && end_of(data, bytes) <= end_of(one.first, one.second);
    };
    return std::ranges::any_of(lent_, holds);
  }

  std::map<void*, std::size_t> lent_;
  bool refuses_ = false;
  std::map<std::uint64_t, Copy> under_way_;
  std::uint64_t last_ = 0;
  std::size_t most_ = 0;
};

inline std::unique_ptr<device::CopyQueue> make_late_copy_queue() {
  return std::make_unique<LateCopyQueue>();
}

}  // namespace shardmark::testing
