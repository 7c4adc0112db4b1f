#pragma once
// What a device says of itself while it works: power, clocks, temperature, error counters. Knows nothing of who is asked
// (nvml.hpp) or when (telemetry.hpp). What a device does not tell is NaN or -1, never an error.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::device {

inline constexpr double kNotTold = std::numeric_limits<double>::quiet_NaN();

struct DeviceReading {
  double power_w = kNotTold;
  double sm_clock_mhz = kNotTold;
  double memory_clock_mhz = kNotTold;
  double temperature_c = kNotTold;
  std::int64_t throttle = -1;  // bits of throttle_names()
};

struct HealthCounter {
  std::string name;
  std::int64_t value = -1;
};

class DeviceState {
 public:
  virtual ~DeviceState() = default;
  /// Some tens of microseconds to some milliseconds; never from the thread that trains.
  [[nodiscard]] virtual DeviceReading read() = 0;
  /// Energy used since the driver was loaded, in joules; NaN without such a counter.
  [[nodiscard]] virtual double energy_j() = 0;
  /// Error counters, always the same names in the same order.
  [[nodiscard]] virtual std::vector<HealthCounter> health() = 0;
};

/// Why a clock is lower than it could be: "sw_power_cap", "hw_thermal_slowdown". Empty for 0 and for -1 (not told); a bit
/// without a name reads "bit 12".
[[nodiscard]] std::vector<std::string> throttle_names(std::int64_t mask);

}  // namespace shardmark::device
