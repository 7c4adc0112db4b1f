#pragma once
// The loop that is timed. Alone, so that a benchmark can hold it against a plain loop (tests/micro/comm_loops.cpp).

#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "comm/communicator.hpp"

namespace shardmark::app::bench {

/// Seconds of each of `times_s.size()` calls on this rank. Collective over the communicator. One reading of the clock a call:
/// a call ends where the next begins.
inline void time_calls(comm::Communicator& communicator, const comm::Collective& collective, std::vector<double>& times_s) {
  double before_s = base::now_s();
  for (double& time_s : times_s) {
    communicator.wait(communicator.start(collective));
    const double after_s = base::now_s();
    time_s = after_s - before_s;
    before_s = after_s;
  }
}

}  // namespace shardmark::app::bench
