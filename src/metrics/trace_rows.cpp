#include "metrics/trace_rows.hpp"

namespace shardmark::metrics {

std::vector<record::TraceRow> trace_rows(int rank, const base::Trace& trace, const TraceClock& clock) {
  std::vector<record::TraceRow> rows;
  rows.reserve(static_cast<std::size_t>(trace.num_events()));
  for (const auto& event : trace.sorted_events()) {
    auto& row = rows.emplace_back();
    row.rank = rank;
    row.lane = event.kind == base::TraceKind::collective ? "communication" : "compute";
    row.category = base::name_of(event.kind);
    row.name = trace.text_of(event.name);
    row.purpose = trace.text_of(event.purpose);
    row.group = trace.text_of(event.group);
    row.dtype = trace.text_of(event.dtype);
    row.step = event.step;
    row.tag = event.tag;
    row.sequence = event.sequence;
    row.bytes = event.bytes;
    row.start_s = event.start_s - clock.offset_s - clock.origin_s;
    row.duration_s = event.end_s - event.start_s;
  }
  return rows;
}

record::TraceRankRow trace_rank_row(int rank, const base::Trace& trace, const TraceClock& clock) {
  return {rank, trace.num_events(), trace.num_dropped(), clock.offset_s, clock.uncertainty_s};
}

}  // namespace shardmark::metrics
