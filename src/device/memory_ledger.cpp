#include "device/memory_ledger.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
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

class SpinLock {
 public:
  void lock() noexcept {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

constexpr std::array<MemoryCategory, kNumMemoryPhases> kPhaseCategory{MemoryCategory::other, MemoryCategory::activations,
                                                                      MemoryCategory::workspace, MemoryCategory::workspace};
constexpr int kNoScope = -1;
thread_local int scoped_category = kNoScope;

class Ledger {
 public:
  void add(Header& header) noexcept {
    const std::lock_guard guard(lock_);
    const auto phase = static_cast<std::size_t>(phase_);
    header.category = scoped_category == kNoScope ? kPhaseCategory[phase] : static_cast<MemoryCategory>(scoped_category);
    const auto category = static_cast<std::size_t>(header.category);
    const auto bytes = static_cast<std::int64_t>(header.bytes);
    auto& live = seen_.current[category];
    live += bytes;
    seen_.current_total += bytes;
    seen_.phase_peak[phase][category] = std::max(seen_.phase_peak[phase][category], live);
    seen_.run_peak[category] = std::max(seen_.run_peak[category], live);
    seen_.phase_peak_total[phase] = std::max(seen_.phase_peak_total[phase], seen_.current_total);
    step_peak_ = std::max(step_peak_, seen_.current_total);
    if (seen_.current_total > seen_.run_peak_total) {
      seen_.run_peak_total = seen_.current_total;
      seen_.at_run_peak = seen_.current;
    }
  }

  void remove(const Header& header) noexcept {
    const std::lock_guard guard(lock_);
    const auto bytes = static_cast<std::int64_t>(header.bytes);
    seen_.current[static_cast<std::size_t>(header.category)] -= bytes;
    seen_.current_total -= bytes;
  }

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
      seen_.reserved -= static_cast<std::int64_t>(bytes * blocks.size());
      blocks.clear();
    }
    idle_bytes_ = 0;
  }

  void reserve(std::int64_t bytes) noexcept {
    const std::lock_guard guard(lock_);
    seen_.reserved += bytes;
  }

  void set_phase(MemoryPhase phase) noexcept {
    const std::lock_guard guard(lock_);
    phase_ = phase;
    start_phase_peaks(static_cast<std::size_t>(phase));
  }

  MemorySnapshot snapshot() noexcept {
    const std::lock_guard guard(lock_);
    return seen_;
  }

  void reset_peaks() noexcept {
    const std::lock_guard guard(lock_);
    seen_.run_peak = seen_.at_run_peak = seen_.current;
    seen_.run_peak_total = step_peak_ = seen_.current_total;
    seen_.phase_peak = {};
    seen_.phase_peak_total = {};
    start_phase_peaks(static_cast<std::size_t>(phase_));
  }

  std::int64_t take_step_peak() noexcept {
    const std::lock_guard guard(lock_);
    return std::exchange(step_peak_, seen_.current_total);
  }

 private:
  // What is live when a phase starts belongs to its peak.
  void start_phase_peaks(std::size_t phase) noexcept {
    for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
      seen_.phase_peak[phase][category] = std::max(seen_.phase_peak[phase][category], seen_.current[category]);
    }
    seen_.phase_peak_total[phase] = std::max(seen_.phase_peak_total[phase], seen_.current_total);
  }

  SpinLock lock_;
  MemorySnapshot seen_;
  MemoryPhase phase_ = MemoryPhase::init;
  std::int64_t step_peak_ = 0;
  std::unordered_map<std::size_t, std::vector<void*>> idle_;
  std::size_t idle_bytes_ = 0;
};

Ledger& ledger() {
  // Never destroyed: tensors of static lifetime may be freed after any destructor of ours.
  static auto* instance = new Ledger;
  return *instance;
}

Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes);
}

void give_back(void* block, std::size_t block_bytes) noexcept {
  ledger().reserve(-static_cast<std::int64_t>(block_bytes));
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
  ledger().remove(*header);
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
      const auto live = static_cast<double>(ledger().snapshot().current_total);
      throw base::MemoryError("out of host memory: asked for " + base::format_bytes(static_cast<double>(bytes)) + ", " +
                              base::format_bytes(live) + " in use; use a smaller batch or more ranks");
    }
  }
  static_cast<Header*>(block)->block_bytes = block_bytes;
  ledger().reserve(static_cast<std::int64_t>(block_bytes));
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
    ledger().add(*header);
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
  ledger().set_phase(phase);
}

MemoryScope::MemoryScope(MemoryCategory category) : previous_(scoped_category) {
  scoped_category = static_cast<int>(category);
}
MemoryScope::~MemoryScope() {
  scoped_category = previous_;
}

MemorySnapshot memory_snapshot() {
  return ledger().snapshot();
}
void reset_memory_peaks() {
  ledger().reset_peaks();
}
std::int64_t take_step_peak_bytes() {
  return ledger().take_step_peak();
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
