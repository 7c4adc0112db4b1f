#include "device/memory_ledger.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/memory_counts.hpp"
#include "device/small_blocks.hpp"

namespace shardmark::device {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kAlignment = 64;
// Large blocks are kept for reuse by all threads: the system's allocator would map and unmap them, at a page fault each 4 KiB.
constexpr std::size_t kLargeFrom = SmallBlocks::kSmallBelow;
// Idle large blocks above this are given back when a new block is needed.
constexpr std::size_t kMaxIdleBytes = 512ULL * 1024 * 1024;

/// In front of each block, since LibTorch wants the context to be the data pointer.
struct Header {
  std::size_t bytes;
  std::size_t block_bytes;
  MemoryCategory category;
};
static_assert(sizeof(Header) <= kHeaderBytes);

constinit thread_local std::optional<MemoryCategory> innermost_scope;

/// Blocks that are kept for reuse, and the counts of host tensors.
class Ledger {
 public:
  [[nodiscard]] MemoryCounts& counts() noexcept { return counts_; }

  void* take_idle(std::size_t block_bytes) noexcept {
    const std::lock_guard guard(lock_);
    const auto found = idle_.find(block_bytes);
    if (found == idle_.end() || found->second.empty()) {
      return nullptr;
    }
    void* block = found->second.back();
    found->second.pop_back();
    idle_bytes_ -= block_bytes;
    return block;
  }

  /// False if the block should go back to the system.
  bool keep_idle(void* block, std::size_t block_bytes) noexcept {
    const std::lock_guard guard(lock_);
    if (idle_bytes_ + block_bytes > kMaxIdleBytes) {
      return false;
    }
    try {
      idle_[block_bytes].push_back(block);
    } catch (const std::bad_alloc&) {
      return false;  // no room to remember it: the system takes it back
    }
    idle_bytes_ += block_bytes;
    return true;
  }

  void release_idle() noexcept {
    const std::lock_guard guard(lock_);
    for (auto& [bytes, blocks] : idle_) {
      for (void* block : blocks) {
        std::free(block);
      }
      counts_.reserve(-static_cast<std::int64_t>(bytes * blocks.size()));
      blocks.clear();
    }
    idle_bytes_ = 0;
  }

 private:
  MemoryCounts counts_;
  SpinLock lock_;  // of what is idle
  std::unordered_map<std::size_t, std::vector<void*>> idle_;
  std::size_t idle_bytes_ = 0;
};

Ledger& ledger() {
  // Never destroyed: tensors of static lifetime may be freed after any destructor of ours.
  static auto* instance = new Ledger;
  return *instance;
}

constinit std::atomic<MemoryCounts*> device_counts{nullptr};

Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes);
}

void give_back(void* block, std::size_t block_bytes) noexcept {
  ledger().counts().reserve(-static_cast<std::int64_t>(block_bytes));
  std::free(block);
}

thread_local bool thread_ends = false;
struct ThreadBlocks : SmallBlocks {
  ThreadBlocks() : SmallBlocks(&give_back) {}
  ThreadBlocks(const ThreadBlocks&) = delete;
  ThreadBlocks& operator=(const ThreadBlocks&) = delete;
  ~ThreadBlocks() { thread_ends = true; }
};

/// nullptr while the thread ends: tensors of thread or static lifetime may be freed after its blocks.
SmallBlocks* small_blocks() {
  thread_local ThreadBlocks blocks;
  return thread_ends ? nullptr : &blocks;
}

bool keep(void* block, std::size_t block_bytes) {
  if (block_bytes >= kLargeFrom) {
    return ledger().keep_idle(block, block_bytes);
  }
  auto* small = small_blocks();
  return small != nullptr && small->keep(block, block_bytes);
}

void* take_kept(std::size_t block_bytes) {
  if (block_bytes >= kLargeFrom) {
    return ledger().take_idle(block_bytes);
  }
  auto* small = small_blocks();
  return small == nullptr ? nullptr : small->take(block_bytes);
}

void release(void* data) {
  if (data == nullptr) {
    return;
  }
  Header* header = header_of(data);
  ledger().counts().remove(static_cast<std::int64_t>(header->bytes), header->category);
  const std::size_t block_bytes = header->block_bytes;
  if (!keep(header, block_bytes)) {
    give_back(header, block_bytes);
  }
}

void* obtain(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t needed = bytes + kHeaderBytes;
  const std::size_t granule = needed >= kLargeFrom ? kPage : SmallBlocks::kGranule;
  const std::size_t block_bytes = (needed + granule - 1) / granule * granule;
  if (void* block = take_kept(block_bytes)) {
    static_cast<Header*>(block)->block_bytes = block_bytes;
    return block;
  }
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, block_bytes) != 0) {
    ledger().release_idle();
    if (auto* small = small_blocks()) {
      small->clear();
    }
    if (posix_memalign(&block, kAlignment, block_bytes) != 0) {
      const auto live = static_cast<double>(ledger().counts().snapshot().current_total);
      throw base::MemoryError("out of host memory: asked for " + base::format_bytes(static_cast<double>(bytes)) + ", " +
                              base::format_bytes(live) + " in use; use a smaller batch or more ranks");
    }
  }
  static_cast<Header*>(block)->block_bytes = block_bytes;
  ledger().counts().reserve(static_cast<std::int64_t>(block_bytes));
  return block;
}

class LedgerAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) {
      return {nullptr, nullptr, &release, cpu};
    }
    auto* header = static_cast<Header*>(obtain(bytes));
    header->bytes = bytes;
    header->category = ledger().counts().add(static_cast<std::int64_t>(bytes), innermost_scope);
    void* data = reinterpret_cast<char*>(header) + kHeaderBytes;
    return {data, data, &release, cpu};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
};

}  // namespace

std::string_view name_of(MemoryCategory category) {
  constexpr std::array<std::string_view, kNumMemoryCategories> names{
      "parameters", "gradients", "optimizer_state", "offloaded", "gathered", "buckets", "activations", "workspace", "other"};
  return names[static_cast<std::size_t>(category)];
}

std::string_view name_of(MemoryPhase phase) {
  constexpr std::array<std::string_view, kNumMemoryPhases> names{"init", "forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

void install_memory_ledger() {
  static LedgerAllocator* allocator = [] {
    auto* made = new LedgerAllocator;
    c10::SetAllocator(c10::DeviceType::CPU, made, 1);
    return made;
  }();
  static_cast<void>(allocator);
}

void set_memory_phase(MemoryPhase phase) {
  ledger().counts().set_phase(phase);
  if (auto* const device = device_counts.load(std::memory_order_acquire)) {
    device->set_phase(phase);
  }
}

MemoryScope::MemoryScope(MemoryCategory category) : previous_(std::exchange(innermost_scope, category)) {}
MemoryScope::~MemoryScope() {
  innermost_scope = previous_;
}

std::optional<MemoryCategory> scoped_category() noexcept {
  return innermost_scope;
}

void show_device_counts(MemoryCounts* counts) noexcept {
  device_counts.store(counts, std::memory_order_release);
}

MemorySnapshot host_memory_snapshot() {
  return ledger().counts().snapshot();
}

MemorySnapshot memory_snapshot() {
  auto* const device = device_counts.load(std::memory_order_acquire);
  if (device == nullptr) {
    return host_memory_snapshot();
  }
  auto seen = device->snapshot();
  const auto host = host_memory_snapshot();
  const auto offloaded = static_cast<std::size_t>(MemoryCategory::offloaded);
  seen.current[offloaded] += host.current[offloaded];
  seen.run_peak[offloaded] += host.run_peak[offloaded];
  for (std::size_t phase = 0; phase < kNumMemoryPhases; ++phase) {
    seen.phase_peak[phase][offloaded] += host.phase_peak[phase][offloaded];
  }
  return seen;
}

void reset_memory_peaks() {
  ledger().counts().reset_peaks();
  if (auto* const device = device_counts.load(std::memory_order_acquire)) {
    device->reset_peaks();
  }
}

std::int64_t take_step_peak_bytes() {
  auto* const device = device_counts.load(std::memory_order_acquire);
  return (device != nullptr ? *device : ledger().counts()).take_step_peak();
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = -1;
  statm >> total_pages >> resident_pages;
  return resident_pages < 0 ? -1 : resident_pages * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * 1024 : -1;
}

}  // namespace shardmark::device
