#include "device/cuda_memory.hpp"

#include <fmt/format.h>

#include <atomic>

#include "base/error.hpp"
#include "device/device_ledger.hpp"

#ifdef SM_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

namespace shardmark::device {
namespace {

constinit std::atomic<int> device_counted{-1};

}  // namespace

int counted_device() noexcept {
  return device_counted.load(std::memory_order_relaxed);
}

#ifdef SM_WITH_CUDA
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Makes a device current for the life of this object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    switched_ = cudaGetDevice(&previous_) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (switched_) {
      static_cast<void>(cudaSetDevice(previous_));  // it was current before
    }
  }
  [[nodiscard]] bool switched() const { return switched_; }

 private:
  int previous_ = 0;
  bool switched_ = false;
};

void ask_driver(int device, CudaMemory& memory) {
  const CurrentDevice current(device);
  std::size_t free = 0;
  std::size_t total = 0;
  if (current.switched() && cudaMemGetInfo(&free, &total) == cudaSuccess) {
    memory.driver_used_bytes = static_cast<std::int64_t>(total - free);
    memory.driver_total_bytes = static_cast<std::int64_t>(total);
  } else {
    static_cast<void>(cudaGetLastError());  // or the next check of somebody else's call would find it
  }
}

void count(DeviceLedger& ledger, const allocator::TraceEntry& event) {
  using Event = allocator::TraceEntry;
  const auto bytes = static_cast<std::int64_t>(event.size_);
  switch (event.action_) {
    case Event::ALLOC: ledger.allocated(event.addr_, event.size_, scoped_category()); break;
    case Event::FREE_REQUESTED: ledger.freed(event.addr_); break;
    case Event::SEGMENT_ALLOC:
    case Event::SEGMENT_MAP: ledger.reserved(bytes); break;
    case Event::SEGMENT_FREE:
    case Event::SEGMENT_UNMAP: ledger.reserved(-bytes); break;
    default: break;  // free completed, snapshots, notes: nothing is taken or given back
  }
}

}  // namespace

CudaMemory cuda_memory(int device) noexcept {
  CudaMemory memory;
  try {
    ask_driver(device, memory);
    if (!allocator::get()->initialized()) {
      return memory;
    }
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    memory.allocated_bytes = stats.allocated_bytes[kAll].current;
    memory.reserved_bytes = stats.reserved_bytes[kAll].current;
    memory.segments = stats.segment[kAll].current;
    memory.driver_allocations = stats.num_device_alloc;
    memory.retries = stats.num_alloc_retries;
    memory.out_of_memory = stats.num_ooms;
  } catch (const std::exception&) {
    return memory;  // a device that the allocator does not know
  }
  return memory;
}

void install_device_memory_ledger(int device) {
  SM_CHECK(counted_device() < 0, "the device ledger is installed once");
  const int num_devices = c10::cuda::device_count();
  if (device < 0 || device >= num_devices) {
    throw base::EnvironmentError(
        fmt::format("CUDA device {} of {} visible ones: there is none to count memory of; look at `shardmark doctor`", device,
                    num_devices));
  }
  // Never destroyed: tensors of static lifetime may be freed after any destructor of ours.
  static auto* const counts = new MemoryCounts;
  static auto* const ledger = new DeviceLedger(*counts);
  try {
    allocator::init(num_devices);  // a tracker reaches only the devices that the allocator knows by then
    allocator::attachAllocatorTraceTracker([device](const allocator::TraceEntry& event) {
      if (event.device_ == device) {
        count(*ledger, event);
      }
    });
  } catch (const std::exception& error) {
    throw base::EnvironmentError(
        fmt::format("LibTorch's CUDA allocator \"{}\" does not tell its allocations ({}): unset PYTORCH_CUDA_ALLOC_CONF, or "
                    "leave backend: out of it",
                    allocator::name(), error.what()));
  }
  show_device_counts(counts);
  device_counted.store(device, std::memory_order_relaxed);
}

#else

CudaMemory cuda_memory(int /*device*/) noexcept {
  return {};
}

void install_device_memory_ledger(int device) {
  throw base::EnvironmentError(
      fmt::format("CUDA device {}: this build has no CUDA; build shardmark where a toolkit is found (CUDA_HOME)", device));
}

#endif

}  // namespace shardmark::device
