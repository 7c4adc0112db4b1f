#pragma once
// Which way NCCL's messages went in a run: the table /transport of the record, and the check that none between nodes went over
// sockets where the node has RDMA.

#include <optional>
#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "comm/slow_path.hpp"
#include "record/writer.hpp"
#include "train/trainer.hpp"
#include "world/world.hpp"

namespace shardmark::app {

/// Each rank's node. Collective.
[[nodiscard]] std::vector<int> nodes_of(world::World& world);

class RunTransport {
 public:
  /// After the last collective. `infiniband`: the kernel's folder of devices for RDMA. Where nothing is known rank 0 says so
  /// once.
  RunTransport(world::World& world, const comm::NcclTransports& transports, std::vector<int> nodes,
               const std::string& infiniband = "/sys/class/infiniband");

  /// All ranks' rows to rank 0's record; `writer` is nullptr elsewhere. Collective. Throws IoError on rank 0 alone.
  void write(record::RecordWriter* writer) const;
  /// Of all ranks' slow paths, each once. Known on rank 0; no text elsewhere. Collective.
  [[nodiscard]] comm::SlowPathVerdict judge(bool allow_slow_path) const;
  /// Counts this rank's slow paths; rank 0 names those of all ranks. Collective. Absent where nothing is known, and on a single
  /// node, which has nothing to check.
  [[nodiscard]] std::optional<train::Check> check(bool allow_slow_path) const;

 private:
  world::World& world_;
  std::vector<int> nodes_;
  bool known_;
  std::vector<comm::PeerPath> paths_;
  std::vector<comm::PeerPath> slow_;
};

}  // namespace shardmark::app
