#pragma once
// The device that this rank trains on, taken up once for the process, and the communicator between such devices.

#include <memory>
#include <string>

#include "base/fault.hpp"
#include "comm/factory.hpp"
#include "config/run_config.hpp"
#include "device/cpu_facts.hpp"
#include "device/device.hpp"
#include "device/visible_devices.hpp"
#include "world/world.hpp"

namespace shardmark::app {

class RunDevice {
 public:
  /// Collective, before the first tensor: takes the visible CUDA device that is this rank's, or none where none is visible. All
  /// ranks throw or none: EnvironmentError (exit 5) if some ranks see a device and others do not, or there are too few.
  explicit RunDevice(world::World& world);

  /// nullptr: host memory.
  [[nodiscard]] device::Device* get() const { return device_.get(); }
  [[nodiscard]] const device::CudaDevice& facts() const { return facts_; }
  /// The newest CUDA that the driver supports, as 13000; 0 without a driver.
  [[nodiscard]] int driver_cuda() const { return driver_cuda_; }
  /// Several ranks of this run may use one device: right results, no throughput.
  [[nodiscard]] bool may_be_shared() const { return may_be_shared_; }
  /// What MFU is measured against: the device's stated peak, or the host's measured one.
  [[nodiscard]] device::GemmPeak peak(base::DType dtype) const;
  /// Where `numerics.reduction` is "ordered", computation repeats its bits, too. Before the first matrix product.
  void set_reduction(const std::string& reduction) const;
  /// Options of the configured communicator between these devices. `faults` is lent.
  [[nodiscard]] comm::FactoryOptions communicator_options(const config::RunConfig& config, base::FaultPlan* faults) const;

 private:
  std::unique_ptr<device::Device> device_;
  device::CudaDevice facts_;
  int driver_cuda_ = 0;
  bool may_be_shared_ = false;
};

}  // namespace shardmark::app
