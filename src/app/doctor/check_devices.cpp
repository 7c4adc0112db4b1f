// CUDA driver, runtime and devices, and which rank would take which.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool has_driver(const RankFacts& rank) {
  const auto& device = rank.device;
  return !device.kernel_driver.empty() || device.driver_cuda > 0 || !device.devices.empty();
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
              fmt::format("update the NVIDIA driver to one of CUDA {} or newer, or use a LibTorch built for CUDA {}",
                          device.runtime_cuda / 1000, device.driver_cuda / 1000)};
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

/// The device a rank takes: the only visible one, or the one of its node-local rank; nullptr if there is none for it.
const Device* chosen(const RankFacts& rank) {
  const auto& devices = rank.device.devices;
  const auto index = devices.size() == 1 ? 0U : static_cast<std::size_t>(rank.node_rank);
  return index < devices.size() ? &devices[index] : nullptr;
}

Line devices_line(const JobFacts& job) {
  std::map<std::string, std::vector<int>> takers;
  std::size_t num_with = 0;
  for (const auto& rank : job.ranks) {
    num_with += rank.device.devices.empty() ? 0U : 1U;
    if (const auto* device = chosen(rank)) {
      takers[device->uuid].push_back(rank.world_rank);
    }
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
    if (chosen(rank) == nullptr) {
      return {trouble(job), fmt::format("{} devices, none left for local rank {}", devices.size(), rank.node_rank),
              "start one rank a device at most"};
    }
    return {Result::pass, fmt::format("{} x {}", devices.size(), devices.front().name)};
  });
  const bool may_share = variable(job.ranks.front(), "NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  for (const auto& [uuid, ranks] : takers) {
    if (ranks.size() > 1) {
      line.result = std::max(line.result, may_share ? Result::warn : trouble(job));
      line.found += fmt::format("; {} would share device {}", ranks_text(ranks), uuid);
      line.remedy +=
          (line.remedy.empty() ? "" : "; ") +
          std::string("start one rank a device, and let each see its own only (srun --gpus-per-task=1) or all of them");
    }
  }
  if (num_with > 0 && !job.trains_on_devices) {
    line.found += "; this build trains on the CPU";
  }
  return line;
}

}  // namespace

void check_devices(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(driver_line(job));
  lines.push_back(devices_line(job));
}

}  // namespace shardmark::app::doctor
