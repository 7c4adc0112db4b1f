#pragma once
// What the devices of a run say of themselves, from the start of training to the tables /telemetry and /health of the record
// and the energy of steps. Without a device it does nothing and records nothing.

#include <optional>
#include <string>
#include <vector>

#include "device/nvml.hpp"
#include "device/telemetry.hpp"
#include "record/writer.hpp"
#include "world/world.hpp"

namespace shardmark::app {

class RunTelemetry {
 public:
  /// Each rank reads its own device: `uuid`, "" where it trains on the CPU. Where NVML is missing rank 0 says so once. Local.
  RunTelemetry(world::World& world, const std::string& uuid, const std::string& library = "libnvidia-ml.so.1");

  /// Training starts: counters are read, and the device from now on.
  void start();
  /// Of this rank's device since its driver was loaded; NaN where there is no such counter. Takes some microseconds: at block
  /// borders only.
  [[nodiscard]] double energy_j();
  /// Ends reading; all ranks' rows to rank 0's record. `writer` is nullptr elsewhere. Collective. Throws IoError on rank 0
  /// alone.
  void write(record::RecordWriter* writer);
  /// On rank 0 after a failure: its own rows, without communicating, unless all are there already. Throws IoError.
  void write_own(record::RecordWriter& writer);

 private:
  struct Rows {
    std::vector<record::TelemetryRow> telemetry;
    std::vector<record::HealthRow> health;
  };
  [[nodiscard]] std::vector<device::HealthCounter> counters();
  [[nodiscard]] Rows stop();

  world::World& world_;
  std::optional<device::NvmlDevice> device_;
  std::optional<device::TelemetrySampler> sampler_;
  std::vector<device::HealthCounter> before_;
  bool written_ = false;
};

}  // namespace shardmark::app
