#pragma once
// Turns the events of a device allocator, which knows addresses only, into counts by category. Knows no LibTorch.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "device/memory_counts.hpp"

namespace shardmark::device {

/// Nothing here allocates device memory or throws: events come while the allocator holds its lock.
class DeviceLedger {
 public:
  explicit DeviceLedger(MemoryCounts& counts) : counts_(counts) {}

  /// `bytes` as asked for; `scope` of the thread that asked.
  void allocated(std::uintptr_t address, std::size_t bytes, std::optional<MemoryCategory> scope) noexcept {
    const std::lock_guard guard(lock_);
    try {
      const auto [place, is_new] = blocks_.try_emplace(address);
      if (!is_new) {  // its end was not heard of
        counts_.remove(place->second.bytes, place->second.category);
      }
      place->second.bytes = static_cast<std::int64_t>(bytes);
      place->second.category = counts_.add(place->second.bytes, scope);
    } catch (const std::bad_alloc&) {
      return;  // uncounted, rather than never given back
    }
  }

  /// Given back by the program, whether or not its streams are done with it. An address that is not known is none of ours: it
  /// was taken before the ledger was there.
  void freed(std::uintptr_t address) noexcept {
    const std::lock_guard guard(lock_);
    const auto found = blocks_.find(address);
    if (found != blocks_.end()) {
      counts_.remove(found->second.bytes, found->second.category);
      blocks_.erase(found);
    }
  }

  /// Memory that the allocator took from the driver, or gave back if negative.
  void reserved(std::int64_t bytes) noexcept { counts_.reserve(bytes); }

 private:
  struct Block {
    std::int64_t bytes = 0;
    MemoryCategory category = MemoryCategory::other;
  };

  MemoryCounts& counts_;
  std::mutex lock_;
  std::unordered_map<std::uintptr_t, Block> blocks_;
};

}  // namespace shardmark::device
