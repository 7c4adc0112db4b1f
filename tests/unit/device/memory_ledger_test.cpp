// The ledger under LibTorch's host allocator: categories, phases, peaks, reuse, alignment. It is one for the process, so
// each test looks at differences to what it found.

#include "device/memory_ledger.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

namespace shardmark::device {
namespace {

constexpr std::int64_t kKiB = 1024;

torch::Tensor bytes_tensor(std::int64_t bytes) {
  return torch::empty({bytes}, torch::kUInt8);
}

std::int64_t of(const CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
std::int64_t of(const MemorySnapshot& seen, MemoryPhase phase, MemoryCategory category) {
  return of(seen.phase_peak[static_cast<std::size_t>(phase)], category);
}
std::int64_t total_of(const MemorySnapshot& seen, MemoryPhase phase) {
  return seen.phase_peak_total[static_cast<std::size_t>(phase)];
}

class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    install_memory_ledger();
    set_memory_phase(MemoryPhase::init);
    reset_memory_peaks();
    static_cast<void>(take_step_peak_bytes());
    start_ = memory_snapshot();
  }
  ~Ledger() override { set_memory_phase(MemoryPhase::init); }

  [[nodiscard]] std::int64_t grown(MemoryCategory category) const {
    return of(memory_snapshot().current, category) - of(start_.current, category);
  }
  [[nodiscard]] std::int64_t grown() const { return memory_snapshot().current_total - start_.current_total; }

  MemorySnapshot start_;
};

TEST_F(Ledger, CountsBytesAsAskedForAndGivesThemBack) {
  {
    const auto tensor = bytes_tensor(1000);
    EXPECT_EQ(grown(), 1000);
    EXPECT_EQ(grown(MemoryCategory::other), 1000);
    const auto view = tensor.slice(0, 10, 20);
    EXPECT_EQ(grown(), 1000) << "a view holds nothing of its own";
  }
  EXPECT_EQ(grown(), 0);
  const auto empty = bytes_tensor(0);
  EXPECT_EQ(grown(), 0);
}

TEST_F(Ledger, PhaseDecidesTheCategoryWithoutAScope) {
  const std::pair<MemoryPhase, MemoryCategory> kinds[] = {{MemoryPhase::init, MemoryCategory::other},
                                                          {MemoryPhase::forward, MemoryCategory::activations},
                                                          {MemoryPhase::backward, MemoryCategory::workspace},
                                                          {MemoryPhase::optimizer, MemoryCategory::workspace}};
  for (const auto& [phase, category] : kinds) {
    set_memory_phase(phase);
    const auto tensor = bytes_tensor(4 * kKiB);
    EXPECT_EQ(grown(category), 4 * kKiB) << name_of(phase);
    EXPECT_EQ(grown(), 4 * kKiB) << name_of(phase);
  }
}

TEST_F(Ledger, ScopeDecidesTheCategoryInEveryPhase) {
  for (std::size_t i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    set_memory_phase(MemoryPhase::backward);
    std::optional<torch::Tensor> tensor;
    {
      const MemoryScope scope(category);
      tensor = bytes_tensor(300);
    }
    EXPECT_EQ(grown(category), 300) << name_of(category);
    set_memory_phase(MemoryPhase::init);
    tensor.reset();
    EXPECT_EQ(grown(category), 0) << name_of(category) << ": given back to what it was taken for, wherever it is freed";
  }
}

TEST_F(Ledger, ScopesNest) {
  const MemoryScope outer(MemoryCategory::gathered);
  std::vector<torch::Tensor> kept;
  {
    const MemoryScope inner(MemoryCategory::buckets);
    kept.push_back(bytes_tensor(100));
  }
  kept.push_back(bytes_tensor(200));
  EXPECT_EQ(grown(MemoryCategory::buckets), 100);
  EXPECT_EQ(grown(MemoryCategory::gathered), 200);
}

TEST_F(Ledger, SmallBlocksAreReusedInTheirThread) {
  const void* first = nullptr;
  {
    const auto tensor = bytes_tensor(1000);
    first = tensor.const_data_ptr();
  }
  const std::int64_t reserved = memory_snapshot().reserved;
  const auto again = bytes_tensor(980);  // another size of the same granule count
  EXPECT_EQ(again.const_data_ptr(), first);
  EXPECT_EQ(memory_snapshot().reserved, reserved);
  const auto beside = bytes_tensor(980);
  EXPECT_NE(beside.const_data_ptr(), first);
}

TEST_F(Ledger, AThreadThatEndsGivesItsSmallBlocksBack) {
  const std::int64_t reserved = memory_snapshot().reserved;
  std::int64_t kept = 0;
  std::thread([&] {
    { const auto tensor = bytes_tensor(2000); }
    kept = memory_snapshot().reserved - reserved;
  }).join();
  EXPECT_GE(kept, 2000);
  EXPECT_EQ(memory_snapshot().reserved, reserved);
}

TEST_F(Ledger, ABlockMayBeFreedByAnotherThread) {
  std::optional<torch::Tensor> tensor = bytes_tensor(3000);
  std::thread([&] { tensor.reset(); }).join();
  EXPECT_EQ(grown(), 0);
  const auto again = bytes_tensor(3000);
  EXPECT_EQ(grown(), 3000);
}

TEST_F(Ledger, ScopeIsOfItsThread) {
  const MemoryScope scope(MemoryCategory::gradients);
  torch::Tensor tensor;
  std::thread([&] { tensor = bytes_tensor(500); }).join();
  EXPECT_EQ(grown(MemoryCategory::gradients), 0);
  EXPECT_EQ(grown(MemoryCategory::other), 500);
}

TEST_F(Ledger, PeaksPerPhaseHoldWhatWasLiveAtTheirStart) {
  const std::int64_t base = start_.current_total;
  const auto parameters = [] {
    const MemoryScope scope(MemoryCategory::parameters);
    return bytes_tensor(1000);
  }();
  set_memory_phase(MemoryPhase::forward);
  std::optional<torch::Tensor> activations = bytes_tensor(300);
  { const auto more = bytes_tensor(50); }
  set_memory_phase(MemoryPhase::backward);
  { const auto workspace = bytes_tensor(70); }
  activations.reset();
  set_memory_phase(MemoryPhase::optimizer);
  { const auto workspace = bytes_tensor(20); }
  const auto seen = memory_snapshot();
  const std::int64_t parameters_before = of(start_.current, MemoryCategory::parameters);
  const std::int64_t activations_before = of(start_.current, MemoryCategory::activations);
  const std::int64_t workspace_before = of(start_.current, MemoryCategory::workspace);
  EXPECT_EQ(total_of(seen, MemoryPhase::init), base + 1000);
  EXPECT_EQ(total_of(seen, MemoryPhase::forward), base + 1350);
  EXPECT_EQ(total_of(seen, MemoryPhase::backward), base + 1370) << "1000 + 300 live at the start + 70";
  EXPECT_EQ(total_of(seen, MemoryPhase::optimizer), base + 1020);
  EXPECT_EQ(of(seen, MemoryPhase::forward, MemoryCategory::activations), activations_before + 350);
  EXPECT_EQ(of(seen, MemoryPhase::backward, MemoryCategory::activations), activations_before + 300);
  EXPECT_EQ(of(seen, MemoryPhase::optimizer, MemoryCategory::activations), activations_before);
  EXPECT_EQ(of(seen, MemoryPhase::optimizer, MemoryCategory::parameters), parameters_before + 1000);
  EXPECT_EQ(of(seen, MemoryPhase::backward, MemoryCategory::workspace), workspace_before + 70);
  EXPECT_EQ(of(seen, MemoryPhase::optimizer, MemoryCategory::workspace), workspace_before + 20);
}

TEST_F(Ledger, RunPeakAndWhatStoodThen) {
  const std::int64_t base = start_.current_total;
  {
    const MemoryScope scope(MemoryCategory::buckets);
    const auto alone = bytes_tensor(5000);  // the largest of its category, but not the largest sum
  }
  {
    const MemoryScope scope(MemoryCategory::gathered);
    const auto gathered = bytes_tensor(4000);
    const auto other = [] {
      const MemoryScope inner(MemoryCategory::gradients);
      return bytes_tensor(3000);
    }();
  }
  const auto seen = memory_snapshot();
  EXPECT_EQ(seen.run_peak_total, base + 7000);
  EXPECT_EQ(of(seen.run_peak, MemoryCategory::buckets), of(start_.current, MemoryCategory::buckets) + 5000);
  EXPECT_EQ(of(seen.at_run_peak, MemoryCategory::buckets), of(start_.current, MemoryCategory::buckets));
  EXPECT_EQ(of(seen.at_run_peak, MemoryCategory::gathered), of(start_.current, MemoryCategory::gathered) + 4000);
  EXPECT_EQ(of(seen.at_run_peak, MemoryCategory::gradients), of(start_.current, MemoryCategory::gradients) + 3000);
  EXPECT_EQ(std::accumulate(seen.at_run_peak.begin(), seen.at_run_peak.end(), std::int64_t{0}), seen.run_peak_total)
      << "what stood at the peak adds up to it";
}

TEST_F(Ledger, ResetSetsPeaksToWhatIsLive) {
  const auto kept = bytes_tensor(100);
  { const auto gone = bytes_tensor(9000); }
  set_memory_phase(MemoryPhase::forward);
  { const auto gone = bytes_tensor(8000); }
  reset_memory_peaks();
  const auto seen = memory_snapshot();
  EXPECT_EQ(seen.run_peak_total, seen.current_total);
  EXPECT_EQ(seen.run_peak, seen.current);
  EXPECT_EQ(seen.at_run_peak, seen.current);
  EXPECT_EQ(total_of(seen, MemoryPhase::forward), seen.current_total) << "the phase that goes on";
  EXPECT_EQ(total_of(seen, MemoryPhase::init), 0) << "one that has not been since";
}

TEST_F(Ledger, StepPeakStartsAgainFromWhatIsLive) {
  const std::int64_t base = start_.current_total;
  const auto kept = bytes_tensor(100);
  { const auto gone = bytes_tensor(2000); }
  EXPECT_EQ(take_step_peak_bytes(), base + 2100);
  EXPECT_EQ(take_step_peak_bytes(), base + 100);
  { const auto gone = bytes_tensor(500); }
  EXPECT_EQ(take_step_peak_bytes(), base + 600);
}

TEST_F(Ledger, DataStartsAtMultiplesOf64Bytes) {
  std::vector<torch::Tensor> kept;
  for (const std::int64_t bytes : {1, 3, 63, 64, 65, 4096, 65536, 100000, 1000001}) {
    for (int again = 0; again < 3; ++again) {
      kept.push_back(bytes_tensor(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kept.back().data_ptr()) % 64, 0U) << bytes;
      kept.back().fill_(7);  // the last byte too is ours
    }
  }
}

TEST_F(Ledger, LargeBlocksAreReused) {
  constexpr std::int64_t kBytes = 777 * kKiB;  // a size nobody else in this program asks for
  const void* first = nullptr;
  {
    const auto tensor = bytes_tensor(kBytes);
    first = tensor.data_ptr();
  }
  const auto idle = memory_snapshot();
  EXPECT_GE(idle.reserved - start_.reserved, kBytes) << "kept from the system";
  EXPECT_EQ(grown(), 0) << "but not in use";
  const MemoryScope scope(MemoryCategory::optimizer_state);
  // A little less needs the same pages; it is counted as asked for, in its own category.
  const auto again = bytes_tensor(kBytes - 100);
  EXPECT_EQ(again.data_ptr(), first);
  EXPECT_EQ(grown(MemoryCategory::optimizer_state), kBytes - 100);
  EXPECT_EQ(memory_snapshot().reserved, idle.reserved);
  const auto second = bytes_tensor(kBytes);
  EXPECT_NE(second.data_ptr(), first) << "in use already";
}

TEST_F(Ledger, ReservedIsNeverBelowLive) {
  std::vector<torch::Tensor> kept;
  for (const std::int64_t bytes : {10, 1000, 70000, 3000000}) {
    kept.push_back(bytes_tensor(bytes));
    const auto seen = memory_snapshot();
    EXPECT_GE(seen.reserved, seen.current_total);
  }
}

TEST_F(Ledger, CountsUnderManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const MemoryScope scope(static_cast<MemoryCategory>(t));
      for (int i = 0; i < 500; ++i) {
        auto tensor = bytes_tensor(1000 + 200 * i);
        tensor[0] = t;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(memory_snapshot().current, start_.current);
  EXPECT_EQ(grown(), 0);
}

TEST(MemoryNames, AreTheRecords) {
  EXPECT_EQ(name_of(MemoryCategory::parameters), "parameters");
  EXPECT_EQ(name_of(MemoryCategory::gradients), "gradients");
  EXPECT_EQ(name_of(MemoryCategory::optimizer_state), "optimizer_state");
  EXPECT_EQ(name_of(MemoryCategory::offloaded), "offloaded");
  EXPECT_EQ(name_of(MemoryCategory::gathered), "gathered");
  EXPECT_EQ(name_of(MemoryCategory::buckets), "buckets");
  EXPECT_EQ(name_of(MemoryCategory::activations), "activations");
  EXPECT_EQ(name_of(MemoryCategory::workspace), "workspace");
  EXPECT_EQ(name_of(MemoryCategory::other), "other");
  EXPECT_EQ(name_of(MemoryPhase::init), "init");
  EXPECT_EQ(name_of(MemoryPhase::forward), "forward");
  EXPECT_EQ(name_of(MemoryPhase::backward), "backward");
  EXPECT_EQ(name_of(MemoryPhase::optimizer), "optimizer");
}

TEST(Resident, TheProcessHasPages) {
  const auto now = resident_bytes();
  EXPECT_GT(now, 0);
  // The kernel updates the two counters apart; the peak may lag by what per-thread counters hold back (64 pages a thread).
  EXPECT_GE(peak_resident_bytes() + 64 * 4096 * 64, now);
}

}  // namespace
}  // namespace shardmark::device
