// Latency and bandwidth of two ranks, on one node and between nodes.

#include <fmt/format.h>

#include "app/doctor/check_parts.hpp"

namespace shardmark::app::doctor {
namespace {

// Through shared memory 8 bytes take 0.2 to 2 us one way, through the loopback socket 10 us and more: beyond 20 us ranks of
// a node do not talk through shared memory, or wait for a core.
constexpr double kSlowLatency_s = 20e-6;
// A core copies several GB/s, and a message through shared memory is copied twice at most.
constexpr double kSlowBandwidth = 1e9;

Line pair_line(const PairFacts& pair) {
  const std::string check = pair.same_node ? "messages on a node" : "messages between nodes";
  Line line{check, Result::pass,
            fmt::format("ranks {} and {}: 8 bytes in {:.2f} us, 16 MiB at {:.2f} GB/s", pair.first, pair.second,
                        pair.latency_s * 1e6, pair.bytes_per_s / 1e9),
            ""};
  if (pair.same_node && (pair.latency_s > kSlowLatency_s || pair.bytes_per_s < kSlowBandwidth)) {
    line.result = Result::warn;
    line.remedy = fmt::format(
        "expected at most {:.0f} us and at least {:.0f} GB/s on one node: let MPI use shared memory (unset OMPI_MCA_btl and "
        "OMPI_MCA_pml), give each rank a core of its own, and look for other load on the node",
        kSlowLatency_s * 1e6, kSlowBandwidth / 1e9);
  }
  return line;
}

}  // namespace

void check_network(const JobFacts& job, std::vector<Line>& lines) {
  if (!job.network.problem.empty()) {
    lines.push_back({"messages", Result::fail, job.network.problem,
                     "look whether ranks may reach each other (firewall, --mca btl_tcp_if_include of a common network) and "
                     "whether a rank died or was stopped"});
    return;
  }
  if (job.network.pairs.empty()) {
    lines.push_back({"messages", Result::skip, "one rank: nobody to talk to", "mpirun -np 2 shardmark doctor measures them"});
    return;
  }
  for (const auto& pair : job.network.pairs) {
    lines.push_back(pair_line(pair));
  }
}

}  // namespace shardmark::app::doctor
