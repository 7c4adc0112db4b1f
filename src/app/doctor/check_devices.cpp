// CUDA driver, runtime and devices, and which rank would take which.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/doctor/check_parts.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "device/visible_devices.hpp"

namespace shardmark::app::doctor {
namespace {

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool has_driver(const RankFacts& rank) {
  const auto& device = rank.device;
  return !device.kernel_driver.empty() || device.driver_cuda > 0 || !device.devices.empty();
}

/// The oldest branch of the NVIDIA driver that runs a major version of CUDA (NVIDIA, "Minor Version Compatibility").
std::string oldest_driver(int cuda_major) {
  const auto cuda = fmt::format("CUDA {}", cuda_major);
  return cuda_major == 13 ? "580 (" + cuda + ")" : cuda_major == 12 ? "525 (" + cuda + ")" : "one of " + cuda;
}

/// "2 x H200 (132.00 GiB, compute capability 9.0): 0 = GPU-a at 0000:3b:00.0, NUMA node 0; 1 = ...".
std::string devices_text(const std::vector<Device>& devices) {
  std::vector<std::string> parts;
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto& device = devices[i];
    std::string kind = device.name;
    if (device.memory_bytes >= 0) {
      kind += fmt::format(" ({}, compute capability {})", base::format_bytes(static_cast<double>(device.memory_bytes)),
                          device.capability);
    }
    kinds.insert(kind);
    parts.push_back(fmt::format("{} = {}{}{}", i, device.uuid, device.pci.empty() ? "" : " at " + device.pci,
                                device.numa_node < 0 ? "" : fmt::format(" on NUMA node {}", device.numa_node)));
  }
  return fmt::format("{} x {}: {}", devices.size(), base::join({kinds.begin(), kinds.end()}, " and "), base::join(parts, ", "));
}

/// Trouble with devices fails only a build that would use them.
Result trouble(const JobFacts& job) {
  return job.trains_on_devices ? Result::fail : Result::warn;
}

Line driver_line(const JobFacts& job) {
  return combine("cuda driver", job.ranks, [&](const RankFacts& rank) -> Finding {
    const auto& device = rank.device;
    if (!has_driver(rank)) {
      return {Result::skip, "no NVIDIA driver"};
    }
    if (!device.problem.empty()) {
      return {
          trouble(job),
          fmt::format("NVIDIA driver {}: {}", device.kernel_driver.empty() ? "unknown" : device.kernel_driver, device.problem),
          "load the driver's own libcuda.so.1 (in containers: the NVIDIA container runtime); `nvidia-smi` must list the "
          "devices"};
    }
    const auto text = fmt::format("NVIDIA driver {} supports CUDA {}", device.kernel_driver, cuda_text(device.driver_cuda));
    if (device.runtime_cuda == 0) {
      return {Result::pass, text + ", no CUDA runtime is loaded"};
    }
    const auto both = fmt::format("{}, the runtime is {}", text, cuda_text(device.runtime_cuda));
    if (device.driver_cuda / 1000 < device.runtime_cuda / 1000) {
      return {trouble(job), both,
              fmt::format("update the NVIDIA driver to {} or newer, or use a LibTorch built for CUDA {}",
                          oldest_driver(device.runtime_cuda / 1000), device.driver_cuda / 1000)};
    }
    if (device.driver_cuda < device.runtime_cuda) {
      return {Result::warn, both,
              "works by minor-version compatibility, without what the newer minor version added: update the NVIDIA driver"};
    }
    return {Result::pass, both};
  });
}

/// Entries of CUDA_VISIBLE_DEVICES that stand there twice: CUDA then shows no device at all.
std::string repeated_entry(const std::string& visible) {
  std::set<std::string> seen;
  for (std::size_t at = 0; at <= visible.size();) {
    const auto comma = std::min(visible.find(',', at), visible.size());
    const auto entry = visible.substr(at, comma - at);
    if (!entry.empty() && !seen.insert(entry).second) {
      return entry;
    }
    at = comma + 1;
  }
  return "";
}

/// At least what the rank's own place says.
int ranks_beside(const JobFacts& job, const RankFacts& rank) {
  return std::max(static_cast<int>(std::ranges::count(job.ranks, rank.node, &RankFacts::node)), rank.node_rank + 1);
}

/// The UUID of the device that a rank would take, "" if there is none for it.
std::string chosen(const JobFacts& job, const RankFacts& rank, device::DeviceSharing sharing) {
  const auto& devices = rank.device.devices;
  try {
    const int index = device::choose_device(static_cast<int>(devices.size()), rank.node_rank, ranks_beside(job, rank), sharing);
    return devices[static_cast<std::size_t>(index)].uuid;
  } catch (const base::EnvironmentError&) {
    return "";
  }
}

Line devices_line(const JobFacts& job) {
  const bool may_share = variable(job.ranks.front(), "NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  const auto sharing = may_share ? device::DeviceSharing::allowed : device::DeviceSharing::refused;
  std::size_t num_with = 0;
  std::vector<std::string> uuids;
  std::vector<std::string> hosts;
  for (const auto& rank : job.ranks) {
    num_with += rank.device.devices.empty() ? 0U : 1U;
    uuids.push_back(chosen(job, rank, sharing));
    hosts.push_back(rank.host);
  }
  auto line = combine("devices", job.ranks, [&](const RankFacts& rank) -> Finding {
    const auto& devices = rank.device.devices;
    if (const auto entry = repeated_entry(rank.device.visible); !entry.empty()) {
      return {
          trouble(job),
          fmt::format("CUDA_VISIBLE_DEVICES = \"{}\" names {} twice: CUDA then shows no device", rank.device.visible, entry),
          "name each device once in CUDA_VISIBLE_DEVICES"};
    }
    if (devices.empty() && has_driver(rank)) {
      return {trouble(job),
              rank.device.visible.empty()
                  ? "a driver, but no device"
                  : fmt::format("no device visible, CUDA_VISIBLE_DEVICES = \"{}\"", rank.device.visible),
              "ask the batch system for devices (srun --gpus-per-task=1), or correct CUDA_VISIBLE_DEVICES"};
    }
    if (devices.empty()) {
      return num_with == 0 ? Finding{Result::skip, "no CUDA device: training runs on the CPU"}
                           : Finding{trouble(job), "no CUDA device, while other ranks have some",
                                     "give every rank a device (srun --gpus-per-task=1)"};
    }
    if (uuids[static_cast<std::size_t>(rank.world_rank)].empty()) {
      return {trouble(job), fmt::format("{} devices for {} ranks of the node", devices.size(), ranks_beside(job, rank)),
              "start one rank a device at most"};
    }
    return {Result::pass, devices_text(devices)};
  });
  for (const auto& shared : device::duplicate_devices(uuids, hosts)) {
    line.result = std::max(line.result, may_share ? Result::warn : trouble(job));
    line.found += fmt::format("; {} would share device {}", ranks_text(shared.world_ranks), shared.uuid);
    line.remedy +=
        (line.remedy.empty() ? "" : "; ") +
        std::string("start one rank a device, and let each see its own only (srun --gpus-per-task=1) or all of them");
  }
  if (num_with > 0 && !job.trains_on_devices) {
    line.found += "; this build trains on the CPU";
  }
  return line;
}

/// Devices of a node that do not reach each other's memory.
Line peers_line(const JobFacts& job) {
  return combine("peer access", job.ranks, [](const RankFacts& rank) -> Finding {
    const auto& devices = rank.device.devices;
    if (devices.size() < 2) {
      return {Result::skip, devices.empty() ? "no CUDA device" : "one device visible: which others it reaches is not known"};
    }
    std::vector<std::string> apart;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (std::size_t j = i + 1; j < devices.size(); ++j) {
        if (std::ranges::count(devices[i].peers, static_cast<int>(j)) == 0) {
          apart.push_back(fmt::format("{} and {}", i, j));
        }
      }
    }
    if (!apart.empty()) {
      return {Result::warn, fmt::format("no direct access between devices {}", base::join(apart, ", ")),
              "their messages go through host memory: look at `nvidia-smi topo -p2p r`; virtual machines and IOMMU (ACS) may "
              "forbid it"};
    }
    return {Result::pass, fmt::format("all {} devices reach each other", devices.size())};
  });
}

Line nvml_line(const JobFacts& job) {
  return combine("nvml", job.ranks, [](const RankFacts& rank) -> Finding {
    const auto& device = rank.device;
    if (device.devices.empty()) {
      return {Result::skip, "no CUDA device"};
    }
    if (!device.nvml_problem.empty()) {
      return {Result::warn, device.nvml_problem + ": records have no power, clocks, temperatures and error counters",
              "let the driver's libnvidia-ml.so.1 be found (in containers: the NVIDIA container runtime with utility)"};
    }
    if (device.nvml_unknown > 0) {
      return {Result::warn, fmt::format("NVML does not know {} of {} devices", device.nvml_unknown, device.devices.size()),
              "records have no power and clocks of these: load the driver's own libnvidia-ml.so.1"};
    }
    return {Result::pass, "of NVIDIA driver " + device.nvml_driver};
  });
}

}  // namespace

void check_devices(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(driver_line(job));
  lines.push_back(devices_line(job));
  lines.push_back(peers_line(job));
  lines.push_back(nvml_line(job));
}

}  // namespace shardmark::app::doctor
