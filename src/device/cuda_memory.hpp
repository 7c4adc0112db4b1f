#pragma once
// Memory of a CUDA device as LibTorch's allocator and the driver see it, and the ledger's view of device tensors. In a build
// without CUDA everything is unknown.

#include <cstdint>

namespace shardmark::device {

/// -1: not known.
struct CudaMemory {
  std::int64_t allocated_bytes = -1;    // in tensors, rounded up by the allocator
  std::int64_t reserved_bytes = -1;     // taken from the driver: in tensors and kept for reuse
  std::int64_t driver_used_bytes = -1;  // on the device, by everybody: with contexts, NCCL's buffers, other processes
  std::int64_t driver_total_bytes = -1;
  std::int64_t segments = -1;            // separate pieces taken from the driver
  std::int64_t driver_allocations = -1;  // calls that took memory from the driver so far
  std::int64_t retries = -1;             // times that cached blocks were given back because the driver had none left
  std::int64_t out_of_memory = -1;       // requests that failed even then
};

/// Local; asks the driver, which waits for nothing. Never throws.
[[nodiscard]] CudaMemory cuda_memory(int device) noexcept;

/// Counts tensors on this device by category and phase, as the host's ledger does for host tensors: by the scopes of the thread
/// that allocates, which in backward is a thread of LibTorch's. memory_snapshot() is the device's from then on. Once, before
/// the first device tensor: earlier ones are not counted. Throws EnvironmentError without such a device, in a build without
/// CUDA, and with an allocator that tells nothing (backend:cudaMallocAsync).
void install_device_memory_ledger(int device);

/// The device whose tensors are counted; -1: none.
[[nodiscard]] int counted_device() noexcept;

}  // namespace shardmark::device
