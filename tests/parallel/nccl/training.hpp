#pragma once
// Whole runs over NCCL's interface and over MPI, for tests that hold one against the other.

#include <algorithm>
#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "config/parse.hpp"
#include "device/cpu_facts.hpp"
#include "device/memory_ledger.hpp"
#include "tests/parallel/nccl/fixture.hpp"
#include "train/cell.hpp"
#include "workloads/table.hpp"

namespace shardmark::testing {

using Sets = std::vector<std::string>;

/// As the program does it, before its first tensor.
inline void set_up_program() {
  device::install_memory_ledger();
  device::set_compute_threads(1);
}

inline config::RunConfig configured(const std::string& preset, const Sets& sets) {
  config::LoadRequest request;
  request.preset_or_file = preset;
  request.preset_dir = config::find_preset_dir();
  const Sets common{"numerics.reduction=ordered", "measure.warmup_steps=2", "measure.steps=2",   "measure.blocks=2",
                    "optimizer.clip_norm=0.01",   "data.global_batch=36",   "data.micro_batch=0"};
  request.sets = sets;
  for (const auto& set : common) {
    const std::string key = set.substr(0, set.find('=') + 1);
    if (std::ranges::none_of(sets, [&](const auto& given) { return given.starts_with(key); })) {
      request.sets.push_back(set);
    }
  }
  return config::load_config(request);
}

inline train::CellResult train_over(comm::CommunicatorStack& stack, const config::RunConfig& config) {
  base::FaultPlan no_faults;
  return train::run_cell({config, workloads::make_workload, stack, no_faults, test_world().size()});
}

inline comm::FactoryOptions nccl_options(device::Device& device) {
  comm::FactoryOptions options;
  options.backend = "nccl";
  options.device = &device;
  options.device_uuid = "GPU-" + std::to_string(test_world().rank());
  return options;
}

inline comm::CommunicatorStack nccl_stack(device::Device& device) {
  return comm::make_communicator(test_world(), nccl_options(device));
}

}  // namespace shardmark::testing
