#pragma once
// What one rank of a ThreadCommunicator reads and writes for one operation. Knows nothing of locks: who calls it has seen to it
// that the ranks are where they must be.

#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::comm {

/// How often all ranks must have come to one point before the operation is complete. Only all_reduce needs two: ranks sum their
/// part of the buffer, then fetch the others' parts.
[[nodiscard]] inline int num_phases(Operation operation) {
  return operation == Operation::all_reduce ? 2 : 1;
}

/// The part of `rank` in one phase. `asked`: the descriptions of all ranks by rank, equal but for their memory. In a phase no
/// rank writes what another reads or writes.
void do_work(const std::vector<Collective>& asked, int rank, int phase);

}  // namespace shardmark::comm
