#include "device/visible_devices.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace shardmark::device {
namespace {

// cuda.h, which a build without CUDA lacks.
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE: a driver, and nothing visible
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

/// The driver's functions that are used, by name. Each returns a CUresult; 0 is success.
struct Driver {
  int (*get_version)(int*) = nullptr;
  int (*init)(unsigned) = nullptr;
  int (*get_count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*get_name)(char*, int, int) = nullptr;
  int (*get_uuid)(void*, int) = nullptr;
  int (*get_memory)(std::size_t*, int) = nullptr;
  int (*get_attribute)(int*, int, int) = nullptr;
  int (*get_pci)(char*, int, int) = nullptr;
  int (*can_access_peer)(int*, int, int) = nullptr;

  explicit Driver(void* library) {
    find(library, get_version, "cuDriverGetVersion");
    find(library, init, "cuInit");
    find(library, get_count, "cuDeviceGetCount");
    find(library, get, "cuDeviceGet");
    find(library, get_name, "cuDeviceGetName");
    find(library, get_uuid, "cuDeviceGetUuid_v2");  // of a MIG instance its own
    if (get_uuid == nullptr) {
      find(library, get_uuid, "cuDeviceGetUuid");
    }
    find(library, get_memory, "cuDeviceTotalMem_v2");
    find(library, get_attribute, "cuDeviceGetAttribute");
    find(library, get_pci, "cuDeviceGetPCIBusId");
    find(library, can_access_peer, "cuDeviceCanAccessPeer");
  }

  [[nodiscard]] int attribute(int which, int device) const {
    int value = 0;
    return get_attribute != nullptr && get_attribute(&value, which, device) == 0 ? value : 0;
  }

 private:
  template <typename Function>
  static void find(void* library, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
  }
};

std::string uuid_text(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  }
  return text;
}

int numa_node_of(const std::string& pci) {
  std::ifstream file("/sys/bus/pci/devices/" + pci + "/numa_node");
  int node = -1;
  return !pci.empty() && file >> node ? node : -1;
}

/// What is not told stays unknown, but for name and UUID: false without these.
bool describe(const Driver& driver, int device, CudaDevice& found) {
  std::array<char, 256> text{};
  std::array<unsigned char, 16> uuid{};
  if (driver.get_name(text.data(), static_cast<int>(text.size()) - 1, device) != 0 ||
      driver.get_uuid(uuid.data(), device) != 0) {
    return false;
  }
  found.name = text.data();
  found.uuid = uuid_text(uuid);
  std::size_t bytes = 0;
  if (driver.get_memory != nullptr && driver.get_memory(&bytes, device) == 0) {
    found.memory_bytes = static_cast<std::int64_t>(bytes);
  }
  found.capability_major = driver.attribute(kCapabilityMajor, device);
  found.capability_minor = driver.attribute(kCapabilityMinor, device);
  text.fill('\0');
  if (driver.get_pci != nullptr && driver.get_pci(text.data(), static_cast<int>(text.size()) - 1, device) == 0) {
    found.pci = text.data();
    std::ranges::transform(found.pci, found.pci.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  found.numa_node = numa_node_of(found.pci);
  return true;
}

void list(const Driver& driver, CudaDevices& all) {
  int count = 0;
  if (driver.get_count == nullptr || driver.get == nullptr || driver.get_name == nullptr || driver.get_uuid == nullptr ||
      driver.get_count(&count) != 0) {
    all.problem = "libcuda.so.1 does not list devices";
    return;
  }
  std::vector<int> handles;
  for (int index = 0; index < count; ++index) {
    int device = 0;
    CudaDevice found;
    found.index = index;
    if (driver.get(&device, index) != 0 || !describe(driver, device, found)) {
      all.problem = fmt::format("device {} does not answer", index);
      return;
    }
    handles.push_back(device);
    all.devices.push_back(std::move(found));
  }
  if (driver.can_access_peer == nullptr) {
    return;
  }
  for (auto& device : all.devices) {
    for (const auto& other : all.devices) {
      int can = 0;
      const auto from = handles[static_cast<std::size_t>(device.index)];
      const auto to = handles[static_cast<std::size_t>(other.index)];
      if (from != to && driver.can_access_peer(&can, from, to) == 0 && can != 0) {
        device.peers.push_back(other.index);
      }
    }
  }
}

void ask(const std::string& library, CudaDevices& all) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps threads
  if (handle == nullptr) {
    all.reason = fmt::format("no NVIDIA driver: {}", dlerror());
    return;
  }
  const Driver driver(handle);
  if (driver.get_version == nullptr || driver.init == nullptr || driver.get_version(&all.driver_cuda) != 0) {
    all.problem = "libcuda.so.1 does not tell its version";
    return;
  }
  const int code = driver.init(0);
  if (code != 0 && code != kNoDevice) {
    all.problem = fmt::format("cuInit returned error {}", code);
    return;
  }
  if (code == 0) {
    list(driver, all);
  }
  if (all.devices.empty() && all.problem.empty()) {
    const auto visible = base::environment_variable("CUDA_VISIBLE_DEVICES");
    all.reason =
        "the NVIDIA driver shows no device" + (visible ? fmt::format(", CUDA_VISIBLE_DEVICES = \"{}\"", *visible) : "");
  }
}

}  // namespace

CudaDevices cuda_devices(const std::string& library) {
  CudaDevices all;
  ask(library, all);
  if (!all.problem.empty()) {
    all.devices.clear();
    all.reason = "the NVIDIA driver cannot be used: " + all.problem;
  }
  return all;
}

int choose_device(int num_visible, int node_rank, int node_size, DeviceSharing sharing) {
  SM_CHECK(num_visible >= 0 && node_rank >= 0 && node_rank < node_size, "a node-local rank is below the node's size");
  if (num_visible == 0) {
    throw base::EnvironmentError(
        "no CUDA device is visible to this rank: ask the batch system for one a rank (srun --gpus-per-task=1), correct "
        "CUDA_VISIBLE_DEVICES, or train on the CPU");
  }
  if (num_visible == 1) {
    return 0;
  }
  if (node_size > num_visible && sharing == DeviceSharing::refused) {
    throw base::EnvironmentError(
        fmt::format("{} ranks on a node with {} visible CUDA devices: start at most {} ranks a node (mpirun --map-by "
                    "ppr:{}:node, srun --ntasks-per-node={}); NCCL_MULTI_RANK_GPU_ENABLE=1 lets ranks share devices, without "
                    "a throughput",
                    node_size, num_visible, num_visible, num_visible, num_visible));
  }
  return node_rank % num_visible;
}

std::vector<SharedDevice> duplicate_devices(std::span<const std::string> uuids, std::span<const std::string> hosts) {
  SM_CHECK(uuids.size() == hosts.size(), "every rank has a device and a host");
  std::map<std::pair<std::string, std::string>, SharedDevice> takers;
  for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
    if (!uuids[rank].empty()) {
      auto& device = takers[{hosts[rank], uuids[rank]}];
      device.uuid = uuids[rank];
      device.host = hosts[rank];
      device.world_ranks.push_back(static_cast<int>(rank));
    }
  }
  std::vector<SharedDevice> shared;
  for (auto& [key, device] : takers) {
    if (device.world_ranks.size() > 1) {
      shared.push_back(std::move(device));
    }
  }
  std::ranges::sort(shared, {}, [](const SharedDevice& device) { return device.world_ranks.front(); });
  return shared;
}

std::string shared_devices_text(std::span<const SharedDevice> shared) {
  std::string text;
  for (const auto& device : shared) {
    text += text.empty() ? "" : "; ";
    for (std::size_t i = 0; i < device.world_ranks.size(); ++i) {
      const char* const before = i == 0 ? "ranks " : i + 1 == device.world_ranks.size() ? " and " : ", ";
      text += before + std::to_string(device.world_ranks[i]);
    }
    text += fmt::format(" took the same device {} of {}", device.uuid, device.host);
  }
  return text +
         ": start one rank a device, and let each rank see its own only (srun --gpus-per-task=1) or all of the node's; "
         "NCCL_MULTI_RANK_GPU_ENABLE=1 lets them share it, without a throughput";
}

}  // namespace shardmark::device
