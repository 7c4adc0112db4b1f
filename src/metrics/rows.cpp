#include "metrics/rows.hpp"

#include <algorithm>

#include "device/cuda_memory.hpp"

namespace shardmark::metrics {

std::vector<record::CollectiveRow> collective_rows(int rank, const std::vector<comm::CollectiveStats>& stats) {
  std::vector<record::CollectiveRow> rows;
  for (const auto& seen : stats) {
    record::CollectiveRow row;
    row.rank = rank;
    row.operation = comm::name_of(seen.operation);
    row.purpose = comm::name_of(seen.purpose);
    row.group = seen.group;
    row.dtype = base::name_of(seen.dtype);
    row.message_bytes = seen.message_bytes;
    row.count = seen.count;
    row.wire_bytes = seen.wire_bytes;
    row.total_s = seen.total_s;
    row.exposed_s = seen.exposed_s;
    row.min_s = seen.min_s;
    row.median_s = seen.median_s;
    row.max_s = seen.max_s;
    rows.push_back(row);
  }
  return rows;
}

std::vector<record::MemoryRow> memory_rows(int rank, const device::MemorySnapshot& snapshot,
                                           const device::CategoryBytes& predicted) {
  std::vector<record::MemoryRow> rows;
  const auto add = [&](std::string_view phase, std::string_view category, std::int64_t current, std::int64_t peak,
                       std::int64_t at_peak, std::int64_t prediction) {
    record::MemoryRow row;
    row.rank = rank;
    row.phase = phase;
    row.category = category;
    row.current_bytes = current;
    row.peak_bytes = peak;
    row.at_run_peak_bytes = at_peak;
    row.predicted_bytes = prediction;
    rows.push_back(row);
  };
  for (std::size_t phase = 0; phase < device::kNumMemoryPhases; ++phase) {
    const auto phase_name = device::name_of(static_cast<device::MemoryPhase>(phase));
    for (std::size_t c = 0; c < device::kNumMemoryCategories; ++c) {
      add(phase_name, device::name_of(static_cast<device::MemoryCategory>(c)), snapshot.current[c],
          snapshot.phase_peak[phase][c], snapshot.at_run_peak[c], -1);
    }
    add(phase_name, "total", snapshot.current_total, snapshot.phase_peak_total[phase], snapshot.run_peak_total, -1);
  }
  std::int64_t predicted_total = 0;
  for (std::size_t c = 0; c < device::kNumMemoryCategories; ++c) {
    add("run", device::name_of(static_cast<device::MemoryCategory>(c)), snapshot.current[c], snapshot.run_peak[c],
        snapshot.at_run_peak[c], predicted[c]);
    predicted_total += predicted[c] > 0 ? predicted[c] : 0;
  }
  add("run", "total", snapshot.current_total, snapshot.run_peak_total, snapshot.run_peak_total, predicted_total);
  add("run", "reserved", snapshot.reserved, snapshot.reserved, -1, -1);
  if (device::counted_device() >= 0) {
    const auto host = device::host_memory_snapshot();
    add("run", "host", host.current_total, host.run_peak_total, -1, -1);
    // Asked for once, at the end: LibTorch's allocator gives nothing back to the driver unless it must.
    const auto used = device::cuda_memory(device::counted_device()).driver_used_bytes;
    add("run", "driver_used", used, used, -1, -1);
  }
  // The kernel updates its peak late: what is resident now belongs to it.
  const std::int64_t resident = device::resident_bytes();
  add("run", "host_rss", resident, std::max(resident, device::peak_resident_bytes()), -1, -1);
  return rows;
}

double payload_bytes(const std::vector<comm::CollectiveStats>& stats) {
  double bytes = 0;
  for (const auto& row : stats) {
    if (row.purpose == comm::Purpose::gradient || row.purpose == comm::Purpose::parameter) {
      bytes += row.wire_bytes;
    }
  }
  return bytes;
}

}  // namespace shardmark::metrics
