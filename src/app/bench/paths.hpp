#pragma once
// Evidence of which way the messages of `shardmark comm` went: the table /transport, and a verdict on slow paths.

#include <string>
#include <vector>

#include "app/bench/outcome.hpp"
#include "comm/factory.hpp"
#include "record/writer.hpp"
#include "world/world.hpp"

namespace shardmark::app::bench {

struct PathsToJudge {
  std::vector<int> nodes = {};  // of each rank; empty: those of the world
  bool allow_slow_path = false;
  bool measured_world = true;                        // messages went over the communicator of all ranks
  record::RecordWriter* writer = nullptr;            // lent; on rank 0, where there is a record
  std::string infiniband = "/sys/class/infiniband";  // the kernel's folder of devices for RDMA
};

/// After the last measurement, by NCCL's log; nothing where NCCL carries nothing. Sockets between nodes that have RDMA: named
/// in `outcome`, whose code becomes that of a bad pair unless results are wrong; where they are allowed only in a warning.
/// Collective over the world; the stack is not checked. Throws IoError on rank 0 alone if the record takes no table.
///
/// NCCL's log names the ranks of the communicator over the world. Where only parts of it measured, one sum over all is asked
/// for first: its rings and trees reach every node, so that a node without RDMA shows, but not every two ranks get a row.
void judge_paths(world::World& world, comm::CommunicatorStack& stack, const PathsToJudge& paths, Outcome& outcome);

}  // namespace shardmark::app::bench
