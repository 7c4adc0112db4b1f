#include "device/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace shardmark::device {
namespace {

// Of nvml.h, which not every toolkit brings.
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;
constexpr int kCoreTemperature = 0;
constexpr int kCorrected = 0;
constexpr int kUncorrected = 1;
constexpr int kSinceDriverLoad = 0;  // "volatile"
constexpr unsigned kMaxLinks = 18;
constexpr int kLinkReplay = 0;
constexpr int kLinkRecovery = 1;
constexpr int kLinkCrcFlit = 2;
constexpr int kLinkCrcData = 3;

struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

using Handle = void*;

template <typename Function>
void find_function(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

/// A value that a function writes to its last argument; absent if there is no such function or it refuses.
template <typename Value, typename Function, typename... Arguments>
std::optional<Value> ask(Function* function, Arguments... arguments) {
  Value value{};
  if (function == nullptr || function(arguments..., &value) != kSuccess) {
    return std::nullopt;
  }
  return value;
}

template <typename Value>
double scaled(const std::optional<Value>& value, double scale = 1) {
  return value ? static_cast<double>(*value) * scale : kNotTold;
}
template <typename Value>
std::int64_t whole(const std::optional<Value>& value) {
  return value ? static_cast<std::int64_t>(*value) : -1;
}

}  // namespace

struct NvmlLibrary {
  void* handle = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*by_uuid)(const char*, Handle*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;               // mW
  int (*power_limit)(Handle, unsigned*) = nullptr;         // mW
  int (*energy)(Handle, unsigned long long*) = nullptr;    // mJ
  int (*clock)(Handle, int, unsigned*) = nullptr;          // MHz
  int (*max_clock)(Handle, int, unsigned*) = nullptr;      // MHz
  int (*temperature)(Handle, int, unsigned*) = nullptr;    // degrees Celsius
  int (*throttle)(Handle, unsigned long long*) = nullptr;  // bit mask
  int (*memory)(Handle, Memory*) = nullptr;
  int (*ecc_errors)(Handle, int, int, unsigned long long*) = nullptr;
  int (*remapped_rows)(Handle, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*link_state)(Handle, unsigned, int*) = nullptr;
  int (*link_errors)(Handle, unsigned, int, unsigned long long*) = nullptr;
  int (*pcie_replays)(Handle, unsigned*) = nullptr;

  explicit NvmlLibrary(void* opened) : handle(opened) {
    find_function(opened, error_text, "nvmlErrorString");
    find_function(opened, driver_version, "nvmlSystemGetDriverVersion");
    find_function(opened, by_uuid, "nvmlDeviceGetHandleByUUID");
    find_function(opened, power, "nvmlDeviceGetPowerUsage");
    find_function(opened, power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    find_function(opened, energy, "nvmlDeviceGetTotalEnergyConsumption");
    find_function(opened, clock, "nvmlDeviceGetClockInfo");
    find_function(opened, max_clock, "nvmlDeviceGetMaxClockInfo");
    find_function(opened, temperature, "nvmlDeviceGetTemperature");
    find_function(opened, throttle, "nvmlDeviceGetCurrentClocksEventReasons");
    if (throttle == nullptr) {  // its name until driver 535
      find_function(opened, throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    find_function(opened, memory, "nvmlDeviceGetMemoryInfo");
    find_function(opened, ecc_errors, "nvmlDeviceGetTotalEccErrors");
    find_function(opened, remapped_rows, "nvmlDeviceGetRemappedRows");
    find_function(opened, link_state, "nvmlDeviceGetNvLinkState");
    find_function(opened, link_errors, "nvmlDeviceGetNvLinkErrorCounter");
    find_function(opened, pcie_replays, "nvmlDeviceGetPcieReplayCounter");
  }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;
  ~NvmlLibrary() {
    if (shutdown != nullptr) {
      static_cast<void>(shutdown());  // nobody is left to hear of it
    }
    dlclose(handle);
  }

  /// Sum over the links that are up; absent if none tells.
  [[nodiscard]] std::optional<unsigned long long> link_sum(Handle device, int counter) const {
    std::optional<unsigned long long> sum;
    for (unsigned link = 0; link < kMaxLinks; ++link) {
      if (ask<int>(link_state, device, link).value_or(0) == 0) {
        continue;
      }
      if (const auto errors = ask<unsigned long long>(link_errors, device, link, counter)) {
        sum = sum.value_or(0) + *errors;
      }
    }
    return sum;
  }
};

Nvml::Nvml(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    problem_ = dlerror();
    return;
  }
  auto loaded = std::make_shared<NvmlLibrary>(opened);
  int (*init)() = nullptr;
  find_function(opened, init, "nvmlInit_v2");
  if (init == nullptr || loaded->by_uuid == nullptr) {
    problem_ = library + " is no NVML: it has no nvmlInit_v2 or no nvmlDeviceGetHandleByUUID";
    return;
  }
  if (const int code = init(); code != kSuccess) {
    problem_ = fmt::format("nvmlInit_v2 returned {}{}", code,
                           loaded->error_text == nullptr ? "" : fmt::format(" ({})", loaded->error_text(code)));
    return;
  }
  find_function(opened, loaded->shutdown, "nvmlShutdown");
  library_ = std::move(loaded);
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  if (!library_ || library_->driver_version == nullptr ||
      library_->driver_version(text.data(), static_cast<unsigned>(text.size())) != kSuccess) {
    return "";
  }
  return text.data();
}

std::optional<NvmlDevice> Nvml::find(const std::string& uuid) const {
  constexpr std::string_view kWhole = "GPU-";
  if (!library_ || uuid.empty()) {
    return std::nullopt;
  }
  auto handle = ask<Handle>(library_->by_uuid, uuid.c_str());
  if (!handle && uuid.starts_with(kWhole)) {
    const auto instance = "MIG-" + uuid.substr(kWhole.size());
    handle = ask<Handle>(library_->by_uuid, instance.c_str());
  }
  return handle ? std::optional<NvmlDevice>(std::in_place, library_, *handle) : std::nullopt;
}

DeviceReading NvmlDevice::read() {
  const auto& nvml = *library_;
  DeviceReading reading;
  reading.power_w = scaled(ask<unsigned>(nvml.power, handle_), 1e-3);
  reading.sm_clock_mhz = scaled(ask<unsigned>(nvml.clock, handle_, kSmClock));
  reading.memory_clock_mhz = scaled(ask<unsigned>(nvml.clock, handle_, kMemoryClock));
  reading.temperature_c = scaled(ask<unsigned>(nvml.temperature, handle_, kCoreTemperature));
  reading.throttle = whole(ask<unsigned long long>(nvml.throttle, handle_));
  return reading;
}

double NvmlDevice::energy_j() {
  return scaled(ask<unsigned long long>(library_->energy, handle_), 1e-3);
}

std::vector<HealthCounter> NvmlDevice::health() {
  const auto& nvml = *library_;
  const auto ecc = [&](int kind) { return whole(ask<unsigned long long>(nvml.ecc_errors, handle_, kind, kSinceDriverLoad)); };
  std::array<unsigned, 4> rows{};
  const bool remaps =
      nvml.remapped_rows != nullptr && nvml.remapped_rows(handle_, &rows[0], &rows[1], &rows[2], &rows[3]) == kSuccess;
  const auto row = [&](std::size_t which) { return remaps ? static_cast<std::int64_t>(rows[which]) : -1; };
  const auto flit = nvml.link_sum(handle_, kLinkCrcFlit);
  const auto data = nvml.link_sum(handle_, kLinkCrcData);
  return {{"ecc_corrected", ecc(kCorrected)},
          {"ecc_uncorrected", ecc(kUncorrected)},
          {"rows_remapped_corrected", row(0)},
          {"rows_remapped_uncorrected", row(1)},
          {"row_remap_pending", row(2)},
          {"row_remap_failed", row(3)},
          {"nvlink_replay", whole(nvml.link_sum(handle_, kLinkReplay))},
          {"nvlink_recovery", whole(nvml.link_sum(handle_, kLinkRecovery))},
          {"nvlink_crc", flit && data ? whole(std::optional(*flit + *data)) : whole(flit ? flit : data)},
          {"pcie_replay", whole(ask<unsigned>(nvml.pcie_replays, handle_))}};
}

DeviceLimits NvmlDevice::limits() const {
  const auto& nvml = *library_;
  DeviceLimits limits;
  limits.max_sm_clock_mhz = scaled(ask<unsigned>(nvml.max_clock, handle_, kSmClock));
  limits.max_memory_clock_mhz = scaled(ask<unsigned>(nvml.max_clock, handle_, kMemoryClock));
  limits.power_limit_w = scaled(ask<unsigned>(nvml.power_limit, handle_), 1e-3);
  if (const auto memory = ask<Memory>(nvml.memory, handle_)) {
    limits.total_bytes = static_cast<std::int64_t>(memory->total);
    limits.used_bytes = static_cast<std::int64_t>(memory->used);
  }
  return limits;
}

std::vector<std::string> throttle_names(std::int64_t mask) {
  constexpr std::array<std::string_view, 9> names{
      "idle",          "application_clocks",  "sw_power_cap",        "hw_slowdown",
      "sync_boost",    "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake",
      "display_clocks"};
  std::vector<std::string> found;
  for (unsigned bit = 0; mask > 0 && bit < 63; ++bit) {
    if ((mask >> bit & 1) != 0) {
      found.push_back(bit < names.size() ? std::string(names[bit]) : fmt::format("bit {}", bit));
    }
  }
  return found;
}

}  // namespace shardmark::device
