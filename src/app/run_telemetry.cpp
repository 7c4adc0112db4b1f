#include "app/run_telemetry.hpp"

#include <fmt/format.h>

#include "app/gather_rows.hpp"
#include "base/log.hpp"
#include "device/cuda_memory.hpp"

namespace shardmark::app {

RunTelemetry::RunTelemetry(world::World& world, const std::string& uuid, const std::string& library) : world_(world) {
  if (uuid.empty()) {
    return;
  }
  const device::Nvml nvml(library);
  device_ = nvml.find(uuid);
  if (!device_) {
    base::log_warning(fmt::format("the record has no power, clocks and error counters: {}",
                                  nvml.available() ? "NVML does not know device " + uuid : nvml.problem()));
  }
}

std::vector<device::HealthCounter> RunTelemetry::counters() {
  auto all = device_ ? device_->health() : std::vector<device::HealthCounter>{};
  if (device::counted_device() >= 0) {
    const auto memory = device::cuda_memory(device::counted_device());
    all.push_back({"allocator_retries", memory.retries});
    all.push_back({"allocator_out_of_memory", memory.out_of_memory});
    all.push_back({"allocator_driver_allocations", memory.driver_allocations});
    all.push_back({"allocator_segments", memory.segments});
  }
  return all;
}

void RunTelemetry::start() {
  before_ = counters();
  if (device_) {
    sampler_.emplace(*device_);
  }
}

double RunTelemetry::energy_j() {
  return device_ ? device_->energy_j() : device::kNotTold;
}

RunTelemetry::Rows RunTelemetry::stop() {
  Rows rows;
  if (sampler_) {
    for (const auto& [time_s, reading] : sampler_->stop()) {
      rows.telemetry.push_back(
          {world_.rank(), time_s, reading.power_w, reading.sm_clock_mhz, reading.temperature_c, reading.throttle});
    }
  }
  const auto after = counters();
  for (std::size_t i = 0; i < before_.size() && i < after.size(); ++i) {
    rows.health.push_back({world_.rank(), before_[i].name, before_[i].value, after[i].value});
  }
  return rows;
}

void RunTelemetry::write(record::RecordWriter* writer) {
  const auto mine = stop();
  const auto telemetry = gather_rows(world_, mine.telemetry);
  const auto health = gather_rows(world_, mine.health);
  if (writer != nullptr) {
    written_ = true;
    writer->append_telemetry(telemetry);
    writer->append_health(health);
  }
}

void RunTelemetry::write_own(record::RecordWriter& writer) {
  if (!written_) {
    written_ = true;
    const auto mine = stop();
    writer.append_telemetry(mine.telemetry);
    writer.append_health(mine.health);
  }
}

}  // namespace shardmark::app
