#pragma once
// NVIDIA's management library, loaded by name where there is one and never linked: every build can look for it. A function that
// is missing or not supported by a device is a missing value.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_state.hpp"

namespace shardmark::device {

/// What does not change within a run, but for `used_bytes`: of all processes on the device.
struct DeviceLimits {
  double max_sm_clock_mhz = kNotTold;
  double max_memory_clock_mhz = kNotTold;
  double power_limit_w = kNotTold;
  std::int64_t total_bytes = -1;
  std::int64_t used_bytes = -1;
};

struct NvmlLibrary;

/// One device. Keeps the library loaded. May be used by several threads, as NVML may.
class NvmlDevice final : public DeviceState {
 public:
  NvmlDevice(std::shared_ptr<const NvmlLibrary> library, void* handle) : library_(std::move(library)), handle_(handle) {}

  [[nodiscard]] DeviceReading read() override;
  [[nodiscard]] double energy_j() override;
  [[nodiscard]] std::vector<HealthCounter> health() override;
  [[nodiscard]] DeviceLimits limits() const;

 private:
  std::shared_ptr<const NvmlLibrary> library_;
  void* handle_;
};

class Nvml {
 public:
  /// Loads and initialises the library. Never throws because it is missing or refuses: problem() says so.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");

  [[nodiscard]] bool available() const { return library_ != nullptr; }
  /// Why it is not available; "" if it is.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Of the NVIDIA driver, as "580.82.07"; "" if not told.
  [[nodiscard]] std::string driver_version() const;
  /// By UUID, since NVML numbers devices otherwise than CUDA. CUDA writes the UUID of a MIG instance as "GPU-..." too: that
  /// instance is found as well. Absent if NVML is not available or knows no such device.
  [[nodiscard]] std::optional<NvmlDevice> find(const std::string& uuid) const;

 private:
  std::shared_ptr<const NvmlLibrary> library_;
  std::string problem_;
};

}  // namespace shardmark::device
