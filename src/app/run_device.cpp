#include "app/run_device.hpp"

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "device/cuda_memory.hpp"
#include "device/memory_ledger.hpp"
#include "device/peak_flops.hpp"
#ifdef SM_WITH_CUDA
#include "device/cuda_device.hpp"
#endif

namespace shardmark::app {

RunDevice::RunDevice(world::World& world) {
  auto found = device::cuda_devices();
  driver_cuda_ = found.driver_cuda;
#ifndef SM_WITH_CUDA
  if (!found.devices.empty()) {
    base::log_warning("this program was built without CUDA: it trains on the CPU beside " +
                      std::to_string(found.devices.size()) + " visible device(s)");
    found.devices.clear();
  }
#endif
  world.agree("whether CUDA devices are visible", found.devices.empty() ? "no" : "yes");
  if (found.devices.empty()) {
    return;
  }
  may_be_shared_ = base::environment_variable("NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") == "1";
  const auto sharing = may_be_shared_ ? device::DeviceSharing::allowed : device::DeviceSharing::refused;
  world.collectively("the CUDA device", [&] {
    const int index =
        device::choose_device(static_cast<int>(found.devices.size()), world.node_rank(), world.node_size(), sharing);
    facts_ = found.devices.at(static_cast<std::size_t>(index));
#ifdef SM_WITH_CUDA
    device_ = device::make_cuda_device(facts_.index);
    device::install_device_memory_ledger(facts_.index);
#endif
  });
}

device::GemmPeak RunDevice::peak(base::DType dtype) const {
  if (device_) {
    return device::device_peak(facts_.name, dtype);
  }
  auto peak = device::measure_gemm_peak();
  device::reset_memory_peaks();  // its matrices are not the training's
  return peak;
}

void RunDevice::set_reduction([[maybe_unused]] const std::string& reduction) const {
#ifdef SM_WITH_CUDA
  if (device_ && reduction == "ordered") {
    device::compute_repeatably();
  }
#endif
}

comm::FactoryOptions RunDevice::communicator_options(const config::RunConfig& config, base::FaultPlan* faults) const {
  comm::FactoryOptions options;
  options.backend = config.comm.backend;
  if (config.is_given("comm.check") || !device_) {
    options.check = config.comm.check;
  }
  options.faults = faults;
  options.device = device_.get();
  options.device_uuid = facts_.uuid;
  options.may_share_device = may_be_shared_;
  options.init_deadline_s = config.comm.init_deadline_s;
  return options;
}

}  // namespace shardmark::app
