// Versions of the libraries in this process, and the CUDA driver's devices. Asks the runtime by its C function where it is
// there, so that no CUDA header and no device is needed.

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <fstream>
#include <map>

#include "app/doctor/gather.hpp"
#include "base/environment.hpp"
#include "comm/nccl_version.hpp"
#include "device/nvml.hpp"
#include "device/torch_library.hpp"
#include "device/visible_devices.hpp"
#include "record/hdf5_library.hpp"
#include "world/mpi_library.hpp"

namespace shardmark::app::doctor {
namespace {

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
  auto* const get = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
  return get != nullptr && get(&version) == 0 ? version : 0;
}

std::string cuda_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
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
  const auto nccl = comm::nccl_versions();
  facts.nccl = {comm::nccl_version_text(nccl.built), comm::nccl_version_text(nccl.loaded)};
  facts.nccl_paths = {nccl.header, nccl.library};
  facts.files = mapped_libraries();
  return facts;
}

DeviceFacts gather_devices() {
  DeviceFacts facts;
  facts.visible = base::environment_variable("CUDA_VISIBLE_DEVICES").value_or("");
  facts.kernel_driver = first_line("/sys/module/nvidia/version");
  facts.runtime_cuda = runtime_version();
  const auto found = device::cuda_devices();
  facts.driver_cuda = found.driver_cuda;
  facts.problem = found.problem;
  if (!facts.kernel_driver.empty() && found.driver_cuda == 0 && found.problem.empty()) {
    facts.problem = "its library libcuda.so.1 is not found";
  }
  const device::Nvml nvml;
  facts.nvml_driver = nvml.driver_version();
  facts.nvml_problem = nvml.problem();
  for (const auto& device : found.devices) {
    facts.devices.push_back({device.name, device.uuid, device.pci, device.memory_bytes,
                             fmt::format("{}.{}", device.capability_major, device.capability_minor), device.numa_node,
                             device.peers});
    facts.nvml_unknown += nvml.available() && !nvml.find(device.uuid) ? 1 : 0;
  }
  return facts;
}

}  // namespace shardmark::app::doctor
