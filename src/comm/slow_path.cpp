#include "comm/slow_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace shardmark::comm {
namespace {

namespace fs = std::filesystem;

/// The kernel writes "4: ACTIVE"; 5, ACTIVE_DEFER, carries nothing yet.
bool is_active(const fs::path& state) {
  std::ifstream file(state);
  std::string text;
  return std::getline(file, text) && text.starts_with("4:");
}

}  // namespace

bool has_active_rdma_port(const std::string& folder) {
  std::error_code none;
  for (const auto& device : fs::directory_iterator(folder, none)) {
    std::error_code no_ports;
    for (const auto& port : fs::directory_iterator(device.path() / "ports", no_ports)) {
      if (is_active(port.path() / "state")) {
        return true;
      }
    }
  }
  return false;
}

std::vector<PeerPath> slow_paths(std::span<const PeerPath> paths, std::span<const int> nodes, bool has_rdma) {
  const auto is_known = [&](int rank) { return rank >= 0 && static_cast<std::size_t>(rank) < nodes.size(); };
  const auto node_of = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
  std::vector<PeerPath> slow;
  for (const auto& path : paths) {
    if (has_rdma && path.path == PathClass::socket && is_known(path.from) && is_known(path.to) &&
        node_of(path.from) != node_of(path.to)) {
      slow.push_back(path);
    }
  }
  return slow;
}

SlowPathVerdict judge_slow_paths(std::span<const PeerPath> slow, bool allowed) {
  if (slow.empty()) {
    return {};
  }
  constexpr std::size_t kMostNamed = 4;
  std::string pairs;
  for (const auto& path : slow.first(std::min(slow.size(), kMostNamed))) {
    pairs += fmt::format("{}rank {} -> {} ({})", pairs.empty() ? "" : ", ", path.from, path.to, path.detail);
  }
  if (slow.size() > kMostNamed) {
    pairs += fmt::format(" and {} more", slow.size() - kMostNamed);
  }
  return {
      allowed,
      fmt::format("messages between nodes go over sockets although a port for RDMA is active: {}; {}", pairs,
                  allowed ? "allowed by comm.allow_slow_path = true"
                          : "look at NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA and what NCCL_DEBUG=INFO says of NET/IB, or accept "
                            "it by comm.allow_slow_path = true")};
}

}  // namespace shardmark::comm
