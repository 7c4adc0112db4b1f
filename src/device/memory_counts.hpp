#pragma once
// Live bytes and their peaks by category and phase: the accounting of the ledger, one for host tensors and one for device
// tensors. Knows no allocator. Inside the device folder only; memory_ledger.hpp is what others see.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "device/memory_ledger.hpp"

namespace shardmark::device {

/// Held for some nanoseconds at a time, on the way of every tensor.
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

class MemoryCounts {
 public:
  /// Counts bytes under the scope's category, or without a scope under that of the phase; returns it for `remove`.
  MemoryCategory add(std::int64_t bytes, std::optional<MemoryCategory> scope) noexcept {
    const std::lock_guard guard(lock_);
    const auto phase = static_cast<std::size_t>(phase_);
    const MemoryCategory counted = scope.value_or(kPhaseCategory[phase]);
    const auto category = static_cast<std::size_t>(counted);
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
    return counted;
  }

  void remove(std::int64_t bytes, MemoryCategory category) noexcept {
    const std::lock_guard guard(lock_);
    seen_.current[static_cast<std::size_t>(category)] -= bytes;
    seen_.current_total -= bytes;
  }

  /// Bytes taken from the system, or given back to it if negative.
  void reserve(std::int64_t bytes) noexcept {
    const std::lock_guard guard(lock_);
    seen_.reserved += bytes;
  }

  void set_phase(MemoryPhase phase) noexcept {
    const std::lock_guard guard(lock_);
    phase_ = phase;
    start_phase_peaks(static_cast<std::size_t>(phase));
  }

  [[nodiscard]] MemorySnapshot snapshot() noexcept {
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

  [[nodiscard]] std::int64_t take_step_peak() noexcept {
    const std::lock_guard guard(lock_);
    return std::exchange(step_peak_, seen_.current_total);
  }

 private:
  static constexpr std::array<MemoryCategory, kNumMemoryPhases> kPhaseCategory{
      MemoryCategory::other, MemoryCategory::activations, MemoryCategory::workspace, MemoryCategory::workspace};

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
};

/// The category of this thread's innermost MemoryScope.
[[nodiscard]] std::optional<MemoryCategory> scoped_category() noexcept;

/// From now on memory_snapshot() and step peaks are those of `device` memory, whose counts the caller keeps up; phases and
/// resets reach both. nullptr: back to the host's. The counts are lent.
void show_device_counts(MemoryCounts* counts) noexcept;

}  // namespace shardmark::device
