#pragma once
// The trace of a run: from the agreement on a common clock to the tables of the record.

#include <memory>

#include "base/trace.hpp"
#include "comm/factory.hpp"
#include "metrics/trace_rows.hpp"
#include "record/writer.hpp"
#include "world/world.hpp"

namespace shardmark::app {

class RunTrace {
 public:
  /// Takes memory for this rank's events, agrees with the other ranks on the moment from which times count, and has the
  /// collectives of `communication` become events. Collective; all ranks throw or none. Everything is lent.
  RunTrace(world::World& world, comm::CommunicatorStack& communication);
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;
  /// Later collectives make no events any more.
  ~RunTrace();

  [[nodiscard]] base::Trace& events() { return *events_; }

  /// Rank after rank into rank 0's record, so that rank 0 holds the rows of one rank beside its own. Says what was dropped.
  /// `writer` is nullptr elsewhere. Collective. Throws IoError on rank 0 alone.
  void write(record::RecordWriter* writer);
  /// On rank 0 after a failure: the latest of its own events, without communicating, unless ranks' events are there already.
  /// Says what is missing. Throws IoError.
  void write_own(record::RecordWriter& writer);

 private:
  world::World& world_;
  comm::CommunicatorStack& communication_;
  std::unique_ptr<base::Trace> events_;
  metrics::TraceClock clock_;
  int ranks_written_ = 0;
};

}  // namespace shardmark::app
