// Clock, memory, shared memory and processor frequency of each rank's node.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

// The shortest step that the suite measures takes about 100 us (preset mlp) and is cut into a few parts: a clock of 1 us
// resolves them to about 1 %, and a reading of more than 1 us would itself be 1 % of the step.
constexpr double kCoarseClock_s = 1e-6;
constexpr double kSlowClock_s = 1e-6;
/// LibTorch and MPI map about half a GiB before the first tensor: less than twice that leaves nothing to train with.
constexpr std::int64_t kMemoryPerRank = std::int64_t{1} << 30;
/// Open MPI's shared-memory transport keeps 4 MiB a rank there (btl_vader_segment_size); large messages and NCCL's buffers
/// take some times more.
constexpr std::int64_t kSharedMemoryPerRank = std::int64_t{16} << 20;

std::string bytes_text(std::int64_t bytes) {
  return base::format_bytes(static_cast<double>(bytes));
}

std::map<int, std::int64_t> ranks_per_node(const JobFacts& job) {
  std::map<int, std::int64_t> ranks;
  for (const auto& rank : job.ranks) {
    ++ranks[rank.node];
  }
  return ranks;
}

Line clock_line(const JobFacts& job) {
  return combine("clock", job.ranks, [](const RankFacts& rank) -> Finding {
    const auto& clock = rank.clock;
    const char* const kRemedy = "use a node whose clock source is tsc (cat /sys/devices/system/clocksource/clocksource0/*)";
    const auto source = clock.source.empty() ? "unknown source" : clock.source;
    if (clock.backwards) {
      return {Result::fail, source + ": the monotonic clock went backwards", kRemedy};
    }
    if (clock.resolution_s > kCoarseClock_s) {
      return {Result::warn, fmt::format("{}: resolution {:.3g} us", source, clock.resolution_s * 1e6), kRemedy};
    }
    if (clock.cost_s > kSlowClock_s) {
      return {Result::warn, fmt::format("{}: a reading takes {:.3g} us", source, clock.cost_s * 1e6), kRemedy};
    }
    return {Result::pass, fmt::format("{}, monotonic, finer than 1 us", source)};
  });
}

Line memory_line(const JobFacts& job) {
  const auto ranks = ranks_per_node(job);
  return combine("memory", job.ranks, [&](const RankFacts& rank) -> Finding {
    const auto& host = rank.host_facts;
    if (host.ram_bytes < 0) {
      return {Result::skip, "this system does not tell its memory"};
    }
    const bool limited = host.cgroup_bytes >= 0 && host.cgroup_bytes < host.ram_bytes;
    const auto whole = limited ? fmt::format("cgroup limit {} of {}", bytes_text(host.cgroup_bytes), bytes_text(host.ram_bytes))
                               : bytes_text(host.ram_bytes);
    if (host.address_bytes >= 0) {
      return {Result::warn, fmt::format("{}; address space limited to {}", whole, bytes_text(host.address_bytes)),
              "ulimit -v unlimited: LibTorch and CUDA reserve far more addresses than memory"};
    }
    const auto on_node = ranks.at(rank.node);
    const auto usable = limited ? host.cgroup_bytes : host.ram_bytes;
    if (usable / on_node < kMemoryPerRank) {
      return {Result::warn, fmt::format("{} for {}", whole, count_text(on_node, "rank")),
              limited ? "ask the batch system for more memory (--mem), at least 1 GiB a rank"
                      : "start fewer ranks a node: each needs at least 1 GiB"};
    }
    return {Result::pass, whole};
  });
}

Line shared_memory_line(const JobFacts& job) {
  const auto ranks = ranks_per_node(job);
  return combine("shared memory", job.ranks, [&](const RankFacts& rank) -> Finding {
    const auto& host = rank.host_facts;
    const auto on_node = ranks.at(rank.node);
    if (host.shm_bytes < 0) {
      return {Result::warn, "no /dev/shm", "mount a tmpfs at /dev/shm: ranks of a node talk through it"};
    }
    const auto needed = kSharedMemoryPerRank * on_node;
    if (on_node > 1 && host.shm_free_bytes < needed) {
      return {Result::warn,
              fmt::format("/dev/shm has {} free of {} for {}", bytes_text(host.shm_free_bytes), bytes_text(host.shm_bytes),
                          count_text(on_node, "rank")),
              fmt::format("at least {}: remove left-over files, remount it larger, in containers --shm-size=1g",
                          bytes_text(needed))};
    }
    return {Result::pass, fmt::format("/dev/shm of {}", bytes_text(host.shm_bytes))};
  });
}

Line locked_memory_line(const JobFacts& job) {
  return combine("locked memory", job.ranks, [](const RankFacts& rank) -> Finding {
    const auto& host = rank.host_facts;
    if (!host.infiniband) {
      return {Result::skip, "no InfiniBand device"};
    }
    if (host.locked_bytes >= 0) {
      return {Result::warn, fmt::format("ulimit -l is {} beside an InfiniBand device", bytes_text(host.locked_bytes)),
              "ulimit -l unlimited in the batch system's daemon (LimitMEMLOCK=infinity): RDMA needs locked buffers"};
    }
    return {Result::pass, "unlimited"};
  });
}

Line frequency_line(const JobFacts& job) {
  return combine("cpu frequency", job.ranks, [](const RankFacts& rank) -> Finding {
    const auto& host = rank.host_facts;
    const auto turbo = host.turbo.empty() ? std::string() : ", turbo " + host.turbo;
    if (host.governors.empty()) {
      return {Result::skip, "governor not readable (virtual machine or container)" + turbo};
    }
    const auto text = fmt::format("governor {}{}", base::join(host.governors, ", "), turbo);
    if (host.governors != std::vector<std::string>{"performance"}) {
      return {Result::warn, text,
              "cpupower frequency-set -g performance (srun --cpu-freq=Performance): other governors add noise"};
    }
    return {Result::pass, text};
  });
}

}  // namespace

void check_host(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(clock_line(job));
  lines.push_back(memory_line(job));
  lines.push_back(shared_memory_line(job));
  lines.push_back(locked_memory_line(job));
  lines.push_back(frequency_line(job));
}

}  // namespace shardmark::app::doctor
