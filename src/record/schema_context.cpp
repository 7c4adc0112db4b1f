// Tables that say where and how a run was started, and what the machine reported meanwhile.

#include <cstddef>

#include "record/schema_tables.hpp"

namespace shardmark::record {

Table ranks_table() {
  return TableBuilder("ranks", sizeof(RankRow), "one row per rank: where it ran")
      .SM_COLUMN(RankRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(RankRow, node, "1", "index of the rank's node, by its first rank", "MPI shared-memory split")
      .SM_COLUMN(RankRow, node_rank, "1", "rank among those of its node", "MPI shared-memory split")
      .SM_COLUMN(RankRow, host, "", "host name", "operating system")
      .SM_COLUMN(RankRow, pid, "1", "process id", "operating system")
      .SM_COLUMN(RankRow, device_name, "", "accelerator or processor model", "device")
      .SM_COLUMN(RankRow, uuid, "", "of the accelerator, \"\" on a CPU", "device")
      .SM_COLUMN(RankRow, pci, "", "bus address of the accelerator, \"\" on a CPU", "device")
      .SM_COLUMN(RankRow, cpu_set, "", "processors the rank may run on", "operating system", "", "unbound ranks show all")
      .SM_COLUMN(RankRow, numa_node, "1", "memory node of the device, -1 if not known", "device")
      .SM_COLUMN(RankRow, visible_devices, "", "CUDA_VISIBLE_DEVICES of the rank", "environment")
      .take();
}

Table environment_table() {
  return TableBuilder("environment", sizeof(EnvironmentRow), "allow-listed variables, versions, facts of the batch system")
      .SM_COLUMN(EnvironmentRow, name, "", "variable or fact", "rank 0")
      .SM_COLUMN(EnvironmentRow, value, "", "its value, cut to 255 bytes", "rank 0", "",
                 "never the whole environment: no secrets")
      .take();
}

Table config_keys_table() {
  return TableBuilder("config_keys", sizeof(ConfigKeyRow), "every key's effective value and where it came from")
      .SM_COLUMN(ConfigKeyRow, key, "", "name of the key", "configuration")
      .SM_COLUMN(ConfigKeyRow, value, "", "effective value as TOML, cut to 255 bytes", "configuration", "",
                 "/config has it whole")
      .SM_COLUMN(ConfigKeyRow, origin, "", "default, preset NAME, file PATH, --set, --technique or -o", "configuration")
      .take();
}

Table telemetry_table() {
  return TableBuilder("telemetry", sizeof(TelemetryRow), "device state sampled over time, where the machine gives it")
      .SM_COLUMN(TelemetryRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(TelemetryRow, time_s, "s", "since the start of training", "monotonic clock of the rank", "",
                 "by seconds for half an hour, then ever wider: at most 1800 rows a rank")
      .SM_COLUMN(TelemetryRow, power_w, "W", "power of the device", "device counters")
      .SM_COLUMN(TelemetryRow, clock_mhz, "MHz", "clock of the device's processors", "device counters")
      .SM_COLUMN(TelemetryRow, temperature_c, "C", "temperature of the device", "device counters")
      .SM_COLUMN(TelemetryRow, throttle, "1", "reasons for a lowered clock as a bit mask, -1 if not known", "device counters",
                 "",
                 "1 idle, 2 application clocks, 4 software power cap, 8 hardware slowdown, 16 sync boost, 32 software thermal, "
                 "64 hardware thermal, 128 hardware power brake, 256 display clocks")
      .take();
}

Table health_table() {
  return TableBuilder("health", sizeof(HealthRow), "error counters before and after the run")
      .SM_COLUMN(HealthRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(HealthRow, counter, "", "name of the counter", "device counters", "",
                 "ecc_*, rows_*, row_remap_*, nvlink_* (sum over links), pcie_replay: NVML, since the driver was loaded; "
                 "allocator_*: LibTorch's CUDA allocator")
      .SM_COLUMN(HealthRow, before, "1", "value before the run, -1 if not known", "device counters")
      .SM_COLUMN(HealthRow, after, "1", "value after the run, -1 if not known", "device counters")
      .take();
}

Table transport_table() {
  return TableBuilder("transport", sizeof(TransportRow), "path of messages to each peer, where known")
      .SM_COLUMN(TransportRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(TransportRow, peer, "1", "world rank of the other side, -1 if no path is known", "MPI")
      .SM_COLUMN(
          TransportRow, path, "", "P2P, SHM, IB, socket, plugin or unknown", "NCCL's log", "",
          "one row per path: channels to one peer may differ; ranks that never needed each other have none; empty over MPI; "
          "unknown where the user directs NCCL's log by NCCL_DEBUG")
      .take();
}

}  // namespace shardmark::record
