#pragma once
// Turns a rank's events into rows of the record, on the clock that all ranks share. Local, no communication.

#include <vector>

#include "base/trace.hpp"
#include "record/rows.hpp"

namespace shardmark::metrics {

/// Where a rank's clock stands.
struct TraceClock {
  double offset_s = 0;       // this rank's clock - rank 0's
  double uncertainty_s = 0;  // of the offset
  double origin_s = 0;       // the start of the trace by rank 0's clock
};

[[nodiscard]] std::vector<record::TraceRow> trace_rows(int rank, const base::Trace& trace, const TraceClock& clock);
[[nodiscard]] record::TraceRankRow trace_rank_row(int rank, const base::Trace& trace, const TraceClock& clock);

}  // namespace shardmark::metrics
