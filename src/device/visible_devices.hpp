#pragma once
// The CUDA devices that this process may use, and which of them a rank takes. Asks the driver by its C functions, so that
// every build can look, with or without CUDA, on machines with or without a driver. No MPI: who has which rank is told.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardmark::device {

struct CudaDevice {
  int index = 0;  // CUDA's ordinal in this process: CUDA_VISIBLE_DEVICES renumbers
  std::string name;
  std::string uuid;  // "GPU-5a2f...": the device itself, whatever its number; a MIG instance has one of its own
  std::string pci;   // "0000:3b:00.0", as /sys/bus/pci/devices has it; "" if not told
  std::int64_t memory_bytes = -1;
  int capability_major = 0;
  int capability_minor = 0;
  int numa_node = -1;      // of the memory next to it; -1 if the kernel does not say
  std::vector<int> peers;  // ordinals of visible devices whose memory it reaches directly
};

struct CudaDevices {
  int driver_cuda = 0;  // newest CUDA that the driver supports, as 13000; 0 without a driver
  std::string problem;  // why a driver that is there cannot be used; "" if it answers
  std::vector<CudaDevice> devices;
  std::string reason;  // why `devices` is empty; "" if it is not
};

/// Lists what is visible. Never throws because something is missing. Makes no CUDA context. `library`: the driver's own.
[[nodiscard]] CudaDevices cuda_devices(const std::string& library = "libcuda.so.1");

/// Whether several ranks may share one device (NCCL_MULTI_RANK_GPU_ENABLE=1): right results, no throughput.
enum class DeviceSharing { refused, allowed };

/// The ordinal of the device that a rank takes: the only visible one, or that of its node-local rank; where sharing is allowed
/// and ranks outnumber devices, devices are dealt out in turn. Throws EnvironmentError with the remedy if none is visible or
/// ranks of the node outnumber the devices; the same on all ranks of a node that see equally many.
[[nodiscard]] int choose_device(int num_visible, int node_rank, int node_size, DeviceSharing sharing = DeviceSharing::refused);

/// A device that several ranks took.
struct SharedDevice {
  std::string uuid;
  std::string host;
  std::vector<int> world_ranks;  // ascending
};

/// Devices that two ranks or more took, by their first rank. Both lists are by world rank; ranks without a device have uuid "".
/// The host counts too: virtual machines may give devices of different hosts one UUID.
[[nodiscard]] std::vector<SharedDevice> duplicate_devices(std::span<const std::string> uuids,
                                                          std::span<const std::string> hosts);

/// What to say of them before NCCL starts: names ranks, device and host, with the remedy. `shared` is not empty.
[[nodiscard]] std::string shared_devices_text(std::span<const SharedDevice> shared);

}  // namespace shardmark::device
