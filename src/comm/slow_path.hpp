#pragma once
// Messages between nodes that take the slow way although a fast one is there.

#include <span>
#include <string>
#include <vector>

#include "comm/transport_log.hpp"

namespace shardmark::comm {

/// Whether the node has a port for RDMA (InfiniBand, RoCE) that is up. `folder` is the kernel's list of such devices.
[[nodiscard]] bool has_active_rdma_port(const std::string& folder = "/sys/class/infiniband");

/// The paths over sockets between ranks of different nodes, `nodes` holding each rank's node; none where the node has no RDMA,
/// for then there is no faster way. Ranks that `nodes` does not know are passed over.
[[nodiscard]] std::vector<PeerPath> slow_paths(std::span<const PeerPath> paths, std::span<const int> nodes, bool has_rdma);

struct SlowPathVerdict {
  bool passed = true;
  std::string text;  // "" if there is no slow path; else which, and the remedy
};

/// A run with slow paths is refused unless they are allowed; they are named either way.
[[nodiscard]] SlowPathVerdict judge_slow_paths(std::span<const PeerPath> slow, bool allowed);

}  // namespace shardmark::comm
