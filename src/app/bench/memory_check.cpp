#include "app/bench/memory_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::app::bench {
namespace {

/// Memory that several ranks draw from.
struct Pool {
  std::string name;
  std::int64_t ranks = 0;
  std::int64_t buffers = 0;
  std::int64_t free_bytes = -1;  // the least that one of them saw

  void add(std::int64_t more_buffers, std::int64_t seen_bytes) {
    ++ranks;
    buffers += more_buffers;
    free_bytes = free_bytes < 0 ? seen_bytes : seen_bytes < 0 ? free_bytes : std::min(free_bytes, seen_bytes);
  }
};

/// As --max takes it: rounded down to whole MiB, KiB or bytes.
std::string size_option(double bytes) {
  const auto whole = static_cast<std::int64_t>(bytes);
  return whole >= 1 << 20   ? fmt::format("{}M", whole >> 20)
         : whole >= 1 << 10 ? fmt::format("{}K", whole >> 10)
                            : fmt::format("{}", whole);
}

}  // namespace

void require_memory(const std::vector<RankMemory>& ranks, const std::vector<std::string>& hosts, std::int64_t message_bytes) {
  std::map<std::pair<std::int64_t, std::string>, Pool> pools;  // the host's memory has device ""
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& one = ranks[rank];
    auto& host = pools[{one.node, ""}];
    host.name = fmt::format("memory of host {}", hosts.at(rank));
    host.add(one.host_buffers, one.host_free_bytes);
    if (const std::string uuid = one.device; !uuid.empty()) {
      auto& device = pools[{one.node, uuid}];
      device.name = fmt::format("device {} of host {}", uuid, hosts.at(rank));
      device.add(kBuffers, one.device_free_bytes);
    }
  }
  std::vector<std::string> problems;
  for (const auto& [place, pool] : pools) {
    const double needed = static_cast<double>(pool.buffers) * static_cast<double>(message_bytes);
    const double fillable = kFillable * static_cast<double>(pool.free_bytes);
    if (pool.free_bytes < 0 || needed <= fillable) {
      continue;
    }
    problems.push_back(
        fmt::format("{}: a largest message of {} needs {} there ({} buffers of {} rank{}), and {} are free, of which {:.0f} % "
                    "may be filled: give --max {} at most, or start fewer ranks there",
                    pool.name, base::format_bytes(static_cast<double>(message_bytes)), base::format_bytes(needed), pool.buffers,
                    pool.ranks, pool.ranks == 1 ? "" : "s", base::format_bytes(static_cast<double>(pool.free_bytes)),
                    kFillable * 100, size_option(fillable / static_cast<double>(pool.buffers))));
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
}

}  // namespace shardmark::app::bench
