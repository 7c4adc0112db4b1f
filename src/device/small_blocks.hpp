#pragma once
// Small memory blocks of one thread kept for reuse, by size: the system's allocator splits, merges and sorts its free blocks,
// which costs more than the tensors of a small model do. No locks. Knows nothing of tensors.

#include <array>
#include <cstddef>

namespace shardmark::device {

class SmallBlocks {
 public:
  /// Sizes are multiples of this.
  static constexpr std::size_t kGranule = 64;
  /// Blocks of this size or larger are none of its business.
  static constexpr std::size_t kSmallBelow = 64 * 1024;
  static constexpr std::size_t kMaxIdleBytes = std::size_t{16} * 1024 * 1024;

  /// Gives a block back to the system.
  using GiveBack = void (*)(void* block, std::size_t block_bytes) noexcept;

  explicit SmallBlocks(GiveBack give_back) : give_back_(give_back) {}
  SmallBlocks(const SmallBlocks&) = delete;
  SmallBlocks& operator=(const SmallBlocks&) = delete;
  ~SmallBlocks() { clear(); }

  /// nullptr if none of this size is idle.
  [[nodiscard]] void* take(std::size_t block_bytes) noexcept {
    Idle*& first = first_[block_bytes / kGranule];
    if (first == nullptr) {
      return nullptr;
    }
    Idle* block = first;
    first = block->next;
    idle_bytes_ -= block_bytes;
    return block;
  }

  /// False if enough are idle: the caller gives it back to the system.
  [[nodiscard]] bool keep(void* block, std::size_t block_bytes) noexcept {
    if (idle_bytes_ + block_bytes > kMaxIdleBytes) {
      return false;
    }
    auto* idle = static_cast<Idle*>(block);
    Idle*& first = first_[block_bytes / kGranule];
    idle->next = first;
    first = idle;
    idle_bytes_ += block_bytes;
    return true;
  }

  void clear() noexcept {
    for (std::size_t granules = 0; granules < first_.size(); ++granules) {
      while (void* block = take(granules * kGranule)) {
        give_back_(block, granules * kGranule);
      }
    }
  }

  [[nodiscard]] std::size_t idle_bytes() const noexcept { return idle_bytes_; }

 private:
  /// Lies in the idle block itself.
  struct Idle {
    Idle* next;
  };

  GiveBack give_back_;
  std::array<Idle*, kSmallBelow / kGranule> first_{};  // by size in granules
  std::size_t idle_bytes_ = 0;
};

}  // namespace shardmark::device
