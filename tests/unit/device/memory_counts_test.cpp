// The accounting of device tensors, fed with the events that a device allocator would send: categories, phases, peaks, and
// what the ledger shows once training runs on a device.

#include "device/memory_counts.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/cuda_memory.hpp"
#include "device/device_ledger.hpp"
#include "device/visible_devices.hpp"

namespace shardmark::device {
namespace {

std::int64_t of(const CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
std::size_t at(MemoryPhase phase) {
  return static_cast<std::size_t>(phase);
}

class DeviceLedgerTest : public ::testing::Test {
 protected:
  void allocate(std::uintptr_t address, std::size_t bytes) { ledger_.allocated(address, bytes, scoped_category()); }

  MemoryCounts counts_;
  DeviceLedger ledger_{counts_};
};

TEST_F(DeviceLedgerTest, GivesBackToWhatWasTakenFor) {
  {
    const MemoryScope scope(MemoryCategory::parameters);
    allocate(0x1000, 500);
  }
  counts_.set_phase(MemoryPhase::forward);
  allocate(0x2000, 300);
  counts_.set_phase(MemoryPhase::backward);
  allocate(0x3000, 70);
  auto seen = counts_.snapshot();
  EXPECT_EQ(of(seen.current, MemoryCategory::parameters), 500);
  EXPECT_EQ(of(seen.current, MemoryCategory::activations), 300);
  EXPECT_EQ(of(seen.current, MemoryCategory::workspace), 70);
  EXPECT_EQ(seen.current_total, 870);
  {
    const MemoryScope scope(MemoryCategory::gradients);  // where it is freed does not matter
    ledger_.freed(0x2000);
    ledger_.freed(0x1000);
  }
  seen = counts_.snapshot();
  EXPECT_EQ(of(seen.current, MemoryCategory::activations), 0);
  EXPECT_EQ(of(seen.current, MemoryCategory::parameters), 0);
  EXPECT_EQ(of(seen.current, MemoryCategory::gradients), 0);
  EXPECT_EQ(seen.current_total, 70);
  EXPECT_EQ(seen.run_peak_total, 870);
  EXPECT_EQ(of(seen.at_run_peak, MemoryCategory::activations), 300);
  EXPECT_EQ(seen.phase_peak_total[at(MemoryPhase::forward)], 800);
  EXPECT_EQ(of(seen.phase_peak[at(MemoryPhase::backward)], MemoryCategory::parameters), 500) << "live when it started";
}

TEST_F(DeviceLedgerTest, KnowsItsOwnAddressesOnly) {
  ledger_.freed(0x5000);  // taken before the ledger was there
  EXPECT_EQ(counts_.snapshot().current_total, 0);
  allocate(0x1000, 100);
  ledger_.freed(0x1000);
  ledger_.freed(0x1000);
  EXPECT_EQ(counts_.snapshot().current_total, 0);
  allocate(0x1000, 200);  // an address comes again, with another size
  EXPECT_EQ(counts_.snapshot().current_total, 200);
  allocate(0x1000, 30);  // and once more, although its end was not heard of
  EXPECT_EQ(counts_.snapshot().current_total, 30);
  ledger_.freed(0x1000);
  EXPECT_EQ(counts_.snapshot().current_total, 0);
}

TEST_F(DeviceLedgerTest, ReservedIsWhatTheDriverGave) {
  ledger_.reserved(2 << 20);
  ledger_.reserved(20 << 20);
  ledger_.reserved(-(2 << 20));
  EXPECT_EQ(counts_.snapshot().reserved, 20 << 20);
  EXPECT_EQ(counts_.snapshot().current_total, 0);
}

TEST_F(DeviceLedgerTest, EventsOfManyThreads) {
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const MemoryScope scope(static_cast<MemoryCategory>(t));
      for (std::uintptr_t i = 0; i < 1000; ++i) {
        allocate((t << 32) + i, 64);
      }
      for (std::uintptr_t i = 0; i < 999; ++i) {
        ledger_.freed((t << 32) + i);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  const auto seen = counts_.snapshot();
  EXPECT_EQ(seen.current_total, 4 * 64);
  for (std::size_t category = 0; category < 4; ++category) {
    EXPECT_EQ(seen.current[category], 64);
    EXPECT_EQ(seen.run_peak[category], 64 * 1000);
  }
}

/// The process's ledger shows this device for the life of a test.
class ShownDevice : public DeviceLedgerTest {
 protected:
  ShownDevice() {
    install_memory_ledger();
    set_memory_phase(MemoryPhase::init);
    show_device_counts(&counts_);
    reset_memory_peaks();
  }
  ~ShownDevice() override {
    show_device_counts(nullptr);
    set_memory_phase(MemoryPhase::init);
  }
};

TEST_F(ShownDevice, HostTensorsAreCountedApart) {
  const auto host_before = host_memory_snapshot();
  allocate(0x1000, 1 << 20);
  const auto staged = torch::empty({5000}, torch::kUInt8);
  EXPECT_EQ(memory_snapshot().current_total, 1 << 20);
  EXPECT_EQ(host_memory_snapshot().current_total - host_before.current_total, 5000);
  EXPECT_GE(host_memory_snapshot().run_peak_total, host_before.current_total + 5000);
}

TEST_F(ShownDevice, PhasesAndResetsReachBoth) {
  set_memory_phase(MemoryPhase::forward);
  allocate(0x1000, 10);
  const auto host = torch::empty({20}, torch::kUInt8);
  EXPECT_EQ(of(memory_snapshot().current, MemoryCategory::activations), 10);
  ledger_.freed(0x1000);
  reset_memory_peaks();
  EXPECT_EQ(memory_snapshot().run_peak_total, 0);
  EXPECT_EQ(host_memory_snapshot().run_peak_total, host_memory_snapshot().current_total);
}

TEST_F(ShownDevice, StepPeaksAreTheDevices) {
  static_cast<void>(take_step_peak_bytes());
  allocate(0x1000, 700);
  ledger_.freed(0x1000);
  const auto host = torch::empty({1 << 20}, torch::kUInt8);
  EXPECT_EQ(take_step_peak_bytes(), 700);
  EXPECT_EQ(take_step_peak_bytes(), 0);
}

TEST_F(ShownDevice, OffloadedStatesAreTheHostsAndNoPartOfSums) {
  const auto before = of(memory_snapshot().current, MemoryCategory::offloaded);
  allocate(0x1000, 100);
  const MemoryScope scope(MemoryCategory::offloaded);
  const auto states = torch::empty({4000}, torch::kUInt8);
  const auto seen = memory_snapshot();
  EXPECT_EQ(of(seen.current, MemoryCategory::offloaded) - before, 4000);
  EXPECT_GE(of(seen.run_peak, MemoryCategory::offloaded), 4000);
  EXPECT_GE(of(seen.phase_peak[at(MemoryPhase::init)], MemoryCategory::offloaded), 4000);
  EXPECT_EQ(of(seen.at_run_peak, MemoryCategory::offloaded), 0);
  EXPECT_EQ(seen.current_total, 100);
  EXPECT_EQ(seen.run_peak_total, 100);
}

TEST(CudaMemoryTest, WithoutADeviceNothingIsKnown) {
  if (!cuda_devices().devices.empty()) {
    GTEST_SKIP() << "there is a CUDA device";
  }
  const auto memory = cuda_memory(0);
  EXPECT_EQ(memory.allocated_bytes, -1);
  EXPECT_EQ(memory.driver_used_bytes, -1);
  EXPECT_EQ(memory.retries, -1);
  EXPECT_THROW(install_device_memory_ledger(0), base::EnvironmentError);
  EXPECT_EQ(counted_device(), -1);
}

}  // namespace
}  // namespace shardmark::device
