// Versions of the libraries in this process, and the CUDA driver's devices. Asks the driver and the runtime by their C
// functions where they are there, so that no CUDA header and no device is needed.

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <array>
#include <fstream>
#include <map>

#include "app/doctor/gather.hpp"
#include "base/environment.hpp"
#include "device/torch_library.hpp"
#include "record/hdf5_library.hpp"
#include "world/mpi_library.hpp"

namespace shardmark::app::doctor {
namespace {

template <typename Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Shared libraries mapped into this process; a file reached under two names counts once.
std::vector<std::string> mapped_libraries() {
  std::map<std::string, std::string> by_inode;  // "device inode" -> path
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // address permissions offset device inode path
    const auto slash = line.find('/');
    if (slash == std::string::npos || line.find(".so", slash) == std::string::npos) {
      continue;
    }
    std::size_t field = 0;
    for (int skipped = 0; skipped < 3; ++skipped) {
      field = line.find(' ', field) + 1;
    }
    by_inode.try_emplace(line.substr(field, slash - field), line.substr(slash));
  }
  std::vector<std::string> paths;
  for (const auto& [inode, path] : by_inode) {
    paths.push_back(path);
  }
  return paths;
}

int runtime_version() {
  int version = 0;
  auto* const get = function_of<int(int*)>(RTLD_DEFAULT, "cudaRuntimeGetVersion");
  return get != nullptr && get(&version) == 0 ? version : 0;
}

std::string cuda_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string loaded_nccl() {
  int version = 0;
  auto* const get = function_of<int(int*)>(RTLD_DEFAULT, "ncclGetVersion");
  if (get == nullptr || get(&version) != 0) {
    return "";
  }
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string uuid_text(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  }
  return text;
}

void list_devices(void* driver, DeviceFacts& facts) {
  auto* const get_count = function_of<int(int*)>(driver, "cuDeviceGetCount");
  auto* const get = function_of<int(int*, int)>(driver, "cuDeviceGet");
  auto* const get_name = function_of<int(char*, int, int)>(driver, "cuDeviceGetName");
  auto* const get_uuid = function_of<int(void*, int)>(driver, "cuDeviceGetUuid");
  int count = 0;
  if (get_count == nullptr || get == nullptr || get_name == nullptr || get_uuid == nullptr || get_count(&count) != 0) {
    facts.problem = "libcuda.so.1 does not list devices";
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::array<char, 128> name{};
    std::array<unsigned char, 16> uuid{};
    if (get(&device, ordinal) != 0 || get_name(name.data(), static_cast<int>(name.size()) - 1, device) != 0 ||
        get_uuid(uuid.data(), device) != 0) {
      facts.problem = fmt::format("device {} does not answer", ordinal);
      return;
    }
    facts.devices.push_back({name.data(), uuid_text(uuid)});
  }
}

}  // namespace

LibraryFacts gather_libraries() {
  LibraryFacts facts;
  const auto mpi = world::mpi_library();
  facts.mpi = {mpi.built, mpi.loaded};
  const auto hdf5 = record::hdf5_library();
  facts.hdf5 = {hdf5.built, hdf5.loaded};
  facts.hdf5_built_parallel = hdf5.built_parallel;
  facts.hdf5_loaded_parallel = hdf5.loaded_parallel;
  facts.libtorch = {TORCH_VERSION, device::torch_build_setting("TORCH_VERSION")};
  facts.cuda_runtime = {device::torch_build_setting("CUDA_VERSION"), cuda_text(runtime_version())};
  facts.nccl = {"", loaded_nccl()};  // nothing of ours is compiled against NCCL
  facts.files = mapped_libraries();
  return facts;
}

DeviceFacts gather_devices() {
  DeviceFacts facts;
  facts.visible = base::environment_variable("CUDA_VISIBLE_DEVICES").value_or("");
  facts.kernel_driver = first_line("/sys/module/nvidia/version");
  facts.runtime_cuda = runtime_version();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps threads
  if (driver == nullptr) {
    facts.problem = facts.kernel_driver.empty() ? "" : "its library libcuda.so.1 is not found";
    return facts;
  }
  auto* const get_version = function_of<int(int*)>(driver, "cuDriverGetVersion");
  auto* const init = function_of<int(unsigned)>(driver, "cuInit");
  if (get_version == nullptr || init == nullptr || get_version(&facts.driver_cuda) != 0) {
    facts.problem = "libcuda.so.1 does not tell its version";
    return facts;
  }
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE: a driver, and nothing visible
  if (const int code = init(0); code == kNoDevice) {
    return facts;
  } else if (code != 0) {
    facts.problem = fmt::format("cuInit returned error {}", code);
    return facts;
  }
  list_devices(driver, facts);
  return facts;
}

}  // namespace shardmark::app::doctor
