#pragma once
// Reads from NCCL's log which way its messages go to each peer: there is no function of NCCL's that tells. Pure functions of
// the text; knows nothing of NCCL's header.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::comm {

enum class PathClass : std::uint8_t {
  p2p,      // between the devices of a node, or of nodes that share NVLink
  shm,      // through the node's memory
  ib,       // InfiniBand and RoCE by NCCL's own network
  socket,   // TCP
  plugin,   // a network that NCCL loaded, as AWS Libfabric or IBext
  unknown,  // a word that is not known here
};

/// As the record spells it: P2P, SHM, IB, socket, plugin, unknown.
[[nodiscard]] std::string_view name_of(PathClass path);

struct PeerPath {
  int from = 0;  // ranks in the communicator
  int to = 0;
  PathClass path = PathClass::unknown;
  std::string detail;  // NCCL's words: "P2P/CUMEM/read", "NET/IB/0/GDRDMA"

  friend bool operator==(const PeerPath&, const PeerPath&) = default;
};

struct TransportLog {
  std::string network;          // "IB", "Socket", "AWS Libfabric"; "" if it was not said
  std::vector<PeerPath> paths;  // each once, whatever the number of channels; in the order of the log
};

/// Of the first communicator that the log names, by the formats of NCCL 2.28 to 2.30. NCCL's lines name ranks but no
/// communicator: once a process has made another one, only lines are taken whose own rank it has in the first alone, so that
/// some paths may be missing and none is wrong. Lines of processes may be mixed; other lines, cut ones and garbled ones are
/// passed over.
[[nodiscard]] TransportLog parse_transport_log(std::string_view text);

}  // namespace shardmark::comm
