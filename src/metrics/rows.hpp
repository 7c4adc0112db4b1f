#pragma once
// Turns what the ledger and the counting communicator saw into rows of the record. Local, no communication.

#include <vector>

#include "comm/counting_communicator.hpp"
#include "device/memory_ledger.hpp"
#include "record/rows.hpp"

namespace shardmark::metrics {

[[nodiscard]] std::vector<record::CollectiveRow> collective_rows(int rank, const std::vector<comm::CollectiveStats>& stats);

/// One row per (phase, category), the sums as category "total", reserved and resident bytes in phase "run", and there too,
/// where tensors of a device are counted, those of the host and what the driver says is used. `predicted`: persistent bytes by
/// category, compared in phase "run"; -1 = not predicted.
[[nodiscard]] std::vector<record::MemoryRow> memory_rows(int rank, const device::MemorySnapshot& snapshot,
                                                         const device::CategoryBytes& predicted);

/// Nominal gradient + parameter bytes in the rows.
[[nodiscard]] double payload_bytes(const std::vector<comm::CollectiveStats>& stats);

}  // namespace shardmark::metrics
