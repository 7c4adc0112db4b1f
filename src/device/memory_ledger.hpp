#pragma once
// Counts every byte LibTorch allocates on the host by category and phase, and keeps freed blocks for reuse. Installed once,
// before the first tensor. Knows nothing of models: callers say in scopes what they allocate for. Tensors on a CUDA device are
// counted by the same scopes and phases, apart (cuda_memory.hpp).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardmark::device {

enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer_state,
  offloaded,  // host memory wherever training runs: states of an offloaded optimizer, and what is staged for it
  gathered,
  buckets,
  activations,
  workspace,
  other
};
inline constexpr std::size_t kNumMemoryCategories = 9;

enum class MemoryPhase : std::uint8_t { init, forward, backward, optimizer };
inline constexpr std::size_t kNumMemoryPhases = 4;

[[nodiscard]] std::string_view name_of(MemoryCategory category);
[[nodiscard]] std::string_view name_of(MemoryPhase phase);

using CategoryBytes = std::array<std::int64_t, kNumMemoryCategories>;

/// What the ledger saw since the last reset. Bytes as asked for, without allocator overhead.
struct MemorySnapshot {
  CategoryBytes current{};
  std::int64_t current_total = 0;
  std::array<CategoryBytes, kNumMemoryPhases> phase_peak{};       // largest of each category within the phase
  std::array<std::int64_t, kNumMemoryPhases> phase_peak_total{};  // largest sum within the phase
  CategoryBytes run_peak{};                                       // largest of each category over all phases
  CategoryBytes at_run_peak{};                                    // each category at the moment of the largest sum
  std::int64_t run_peak_total = 0;
  std::int64_t reserved = 0;  // held from the system: in use and kept for reuse
};

/// Makes the ledger LibTorch's CPU allocator. Idempotent. Call before the first tensor: earlier ones are not counted.
void install_memory_ledger();

/// Starts a phase: allocations without an explicit category count as the phase's own kind (init: other, forward:
/// activations, backward and optimizer: workspace), and peaks are kept per phase.
void set_memory_phase(MemoryPhase phase);

/// Allocations of this thread inside the scope count as `category`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  ~MemoryScope();

 private:
  std::optional<MemoryCategory> previous_;
};

/// Of the memory where training runs: the device's once its ledger is installed, else the host's. On a device the category
/// `offloaded` also has what the host holds in it, though neither a sum nor at_run_peak does: host memory is no part of it.
[[nodiscard]] MemorySnapshot memory_snapshot();
/// Of host tensors, wherever training runs.
[[nodiscard]] MemorySnapshot host_memory_snapshot();
/// Sets all peaks to what is live now: a peak is never below live bytes.
void reset_memory_peaks();
/// Largest sum since the last call of this function (starts again from what is live): the peak of one step.
[[nodiscard]] std::int64_t take_step_peak_bytes();

/// Resident set of the process now and its largest so far, in bytes.
[[nodiscard]] std::int64_t resident_bytes();
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace shardmark::device
