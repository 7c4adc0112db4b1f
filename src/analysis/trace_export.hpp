#pragma once
// The events of a traced run as Chrome Trace Event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

#include <iosfwd>
#include <string>
#include <vector>

#include "record/rows.hpp"

namespace shardmark::analysis {

/// One object with traceEvents. A process is a rank, pid = rank + 1 (viewers take process 0 for the idle one); its threads are
/// the lanes: tid 1 compute, whose events nest, tid 2 communication, whose events follow each other, and for collectives under
/// way at the same time 3, 4, ...
/// ("communication 2", ...). Complete events (ph X) with ts and dur in microseconds to the nanosecond, by start within a rank;
/// what was not over when the run failed lasts until the rank's latest event and has args.unfinished. Names by metadata events
/// (ph M). The record has events: see require_trace.
void write_chrome_trace(std::ostream& out, const record::Record& record);

/// Throws ConfigError if the record has no events, with the reason and the remedy.
void require_trace(const record::Record& record);

/// What a reader of the trace must know: ranks without events, events dropped, clocks that are not sure. Empty if nothing.
[[nodiscard]] std::vector<std::string> trace_warnings(const record::Record& record);

}  // namespace shardmark::analysis
