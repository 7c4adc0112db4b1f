// Tables of a traced run: the events of every rank over time.

#include <cstddef>

#include "record/schema_tables.hpp"

namespace shardmark::record {

Table trace_table() {
  const std::string who = "counting communicator";
  return TableBuilder("trace", sizeof(TraceRow),
                      "one row per event of a rank, with output.trace: what it computed and sent, when")
      .SM_COLUMN(TraceRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(TraceRow, lane, "", "compute (the rank's thread) or communication (collectives under way)", "trainer", "",
                 "events of compute nest; those of communication overlap each other")
      .SM_COLUMN(TraceRow, category, "",
                 "step, phase (data, forward, backward, gradients, optimizer; evaluation), unit (a pass of a unit of the "
                 "model), wait (for a collective), collective",
                 "trainer", "",
                 "backward_s of /steps = phases backward + gradients; a step's total_s holds more than its phases")
      .SM_COLUMN(TraceRow, name, "", "of the step, phase, unit or operation, cut to 47 bytes", "trainer")
      .SM_COLUMN(TraceRow, purpose, "", "of a collective or of what was waited for: gradient, parameter, buffer or control",
                 who)
      .SM_COLUMN(TraceRow, group, "", "the collective's group of ranks", who)
      .SM_COLUMN(TraceRow, dtype, "", "type of its elements on the wire", who)
      .SM_COLUMN(TraceRow, step, "1", "optimizer step as in /steps, -1 outside steps", "trainer", "",
                 "/collectives counts the timed steps only")
      .SM_COLUMN(TraceRow, tag, "1", "what the collective is about: bucket, unit or step", "caller")
      .SM_COLUMN(TraceRow, sequence, "1", "number of the collective on this rank; a wait has that of what it waited for", who,
                 "", "ranks number alike only while they start the same collectives in the same order")
      .SM_COLUMN(TraceRow, bytes, "bytes", "message_bytes of the collective, -1 where there is none", who)
      .SM_COLUMN(TraceRow, start_s, "s", "since the start of the trace, the same moment on all ranks",
                 "monotonic clock of the rank", "clock of the rank - its offset - start of the trace by rank 0's clock",
                 "between hosts only as good as clock_uncertainty_s of /trace_ranks")
      .SM_COLUMN(TraceRow, duration_s, "s", "NaN for what was not over when the run failed", "monotonic clock of the rank", "",
                 "of a collective: until the rank saw that it was complete")
      .take();
}

Table trace_ranks_table() {
  return TableBuilder("trace_ranks", sizeof(TraceRankRow), "one row per rank whose events are in /trace")
      .SM_COLUMN(TraceRankRow, rank, "1", "world rank", "MPI", "", "after a failure rank 0 alone")
      .SM_COLUMN(TraceRankRow, num_events, "1", "rows of the rank in /trace", "trainer")
      .SM_COLUMN(TraceRankRow, num_dropped, "1", "events that are not in /trace: the latest ones, beyond the memory for them",
                 "trainer", "", "after a failure the earliest ones too: the record must be closed in time")
      .SM_COLUMN(TraceRankRow, clock_offset_s, "s", "clock of the rank's host - clock of rank 0's host, at the start",
                 "the shortest of some round trips", "", "drift during the run is not corrected")
      .SM_COLUMN(TraceRankRow, clock_uncertainty_s, "s", "largest error of clock_offset_s when it was measured; 0 on one host",
                 "the shortest of some round trips", "half of that round trip")
      .take();
}

}  // namespace shardmark::record
