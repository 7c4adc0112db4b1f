#include "app/run_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "app/gather_rows.hpp"
#include "base/log.hpp"

namespace shardmark::app {
namespace {

/// A path as ranks send it to each other.
struct TravellingPath {
  int from = 0;
  int to = 0;
  comm::PathClass path = comm::PathClass::unknown;
  record::FixedText<48> detail;
};

}  // namespace

std::vector<int> nodes_of(world::World& world) {
  const int mine = world.node();
  std::vector<int> nodes;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&nodes.emplace_back(), bytes.data(), sizeof mine);
  }
  return nodes;
}

RunTransport::RunTransport(world::World& world, const comm::NcclTransports& transports, std::vector<int> nodes,
                           const std::string& infiniband)
    : world_(world), nodes_(std::move(nodes)), known_(transports.unknown_because.empty()), paths_(transports.log.paths) {
  if (!known_) {
    base::log_info(
        fmt::format("which way NCCL's messages go is not known, nor whether RDMA is used: {}; unset it for the "
                    "table /transport",
                    transports.unknown_because));
  }
  slow_ = comm::slow_paths(paths_, nodes_, comm::has_active_rdma_port(infiniband));
}

void RunTransport::write(record::RecordWriter* writer) const {
  const int rank = world_.rank();
  std::vector<record::TransportRow> mine;
  if (!known_) {
    mine.push_back({rank, -1, comm::name_of(comm::PathClass::unknown)});
  }
  for (const auto& path : paths_) {
    const std::int64_t peer = path.from == rank ? path.to : path.from;
    const auto name = comm::name_of(path.path);
    const bool there = std::ranges::any_of(mine, [&](const auto& row) { return row.peer == peer && row.path.str() == name; });
    if (!there) {
      mine.push_back({rank, peer, name});
    }
  }
  std::ranges::sort(mine, {}, [](const auto& row) { return std::pair(row.peer, row.path.str()); });
  const auto all = gather_rows(world_, mine);
  if (writer != nullptr) {
    writer->append_transport(all);
  }
}

comm::SlowPathVerdict RunTransport::judge(bool allow_slow_path) const {
  std::vector<TravellingPath> mine;
  for (const auto& path : slow_) {
    mine.push_back({path.from, path.to, path.path, path.detail});
  }
  std::vector<comm::PeerPath> all;
  for (const auto& gathered : gather_rows(world_, mine)) {
    comm::PeerPath path{gathered.from, gathered.to, gathered.path, gathered.detail.str()};
    if (std::ranges::find(all, path) == all.end()) {  // over a network both sides name it
      all.push_back(std::move(path));
    }
  }
  return comm::judge_slow_paths(all, allow_slow_path);
}

std::optional<train::Check> RunTransport::check(bool allow_slow_path) const {
  if (const auto verdict = judge(allow_slow_path); !verdict.text.empty()) {
    base::log_warning(verdict.text);
  }
  const bool one_node = std::ranges::count(nodes_, nodes_.front()) == std::ssize(nodes_);
  if (!known_ || one_node) {
    return std::nullopt;
  }
  return train::Check{"transport", 0, static_cast<double>(slow_.size()), 0,
                      comm::judge_slow_paths(slow_, allow_slow_path).passed};
}

}  // namespace shardmark::app
