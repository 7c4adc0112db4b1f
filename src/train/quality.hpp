#pragma once
// A model's quality over all held-out rows, by all ranks together.

#include "comm/communicator.hpp"
#include "parallel/strategy.hpp"
#include "train/workload.hpp"

namespace shardmark::train {

/// Rows are cut into the same pieces and their sums are added in the same order at every number of ranks: equal parameters have
/// bitwise equal qualities. Outside a step. Collective; the same on all ranks; NaN without held-out rows.
[[nodiscard]] double quality_of(Workload& workload, parallel::Strategy& strategy, comm::Communicator& communicator);

}  // namespace shardmark::train
