// Binding of ranks to cores, and threads a rank.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

/// Whether rank `index` can be given a core, moving others that already have one: one step of a bipartite matching.
bool place(std::size_t index, const std::vector<std::vector<int>>& cores, std::map<int, std::size_t>& owner,
           std::set<int>& tried) {
  for (const int core : cores[index]) {
    if (!tried.insert(core).second) {
      continue;
    }
    const auto held = owner.find(core);
    if (held == owner.end() || place(held->second, cores, owner, tried)) {
      owner[core] = index;
      return true;
    }
  }
  return false;
}

/// Ranks of one node that cannot all have a core of their own, although the node gives the job enough: "" if they can.
std::string needless_sharing(const std::vector<const RankFacts*>& members) {
  std::vector<std::vector<int>> cores;
  std::vector<Cpu> given;
  for (const auto* rank : members) {
    cores.push_back(cores_of(rank->cpus));
    given.insert(given.end(), rank->job_cpus.begin(), rank->job_cpus.end());
    given.insert(given.end(), rank->cpus.begin(), rank->cpus.end());
  }
  const auto num_given = cores_of(given).size();
  if (members.size() > num_given) {
    return "";  // oversubscribed: the line of ranks per node says so
  }
  std::map<int, std::size_t> owner;
  std::vector<int> unplaced;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    std::set<int> tried;
    if (!place(i, cores, owner, tried)) {
      unplaced.push_back(members[i]->world_rank);
    }
  }
  if (unplaced.empty()) {
    return "";
  }
  return fmt::format("on {} {} must share a core with another rank, although {} of {} cores would stay free",
                     members.front()->host, ranks_text(unplaced), num_given - owner.size(), num_given);
}

std::string cpus_text(const std::vector<Cpu>& cpus) {
  std::vector<int> numbers;
  for (const auto& cpu : cpus) {
    numbers.push_back(cpu.cpu);
  }
  std::ranges::sort(numbers);
  const auto text = ranks_text(numbers);  // "rank 0", "ranks 0-3": the same list form
  return text.substr(text.find(' ') + 1);
}

Line binding_line(const JobFacts& job) {
  std::vector<std::string> sharing;
  for (const auto& members : by_node(job.ranks)) {
    if (auto text = needless_sharing(members); !text.empty()) {
      sharing.push_back(std::move(text));
    }
  }
  auto line = combine("binding", job.ranks, [](const RankFacts& rank) -> Finding {
    if (rank.cpus.empty()) {
      return {Result::skip, "this system does not tell the cpu set"};
    }
    const bool bound = rank.cpus.size() < rank.job_cpus.size();
    return {Result::pass, fmt::format("{} {}", bound ? "bound to cpu" : "may run on all cpus:", cpus_text(rank.cpus))};
  });
  if (!sharing.empty()) {
    line.result = Result::warn;
    line.found = base::join(sharing, "; ") + "; " + line.found;
    line.remedy =
        "mpirun --bind-to core (SHARDMARK_BIND=core with scripts/launch.sh), srun --cpu-bind=cores; unset OMP_PROC_BIND and "
        "KMP_AFFINITY, which bind every rank to the same core";
  }
  return line;
}

std::optional<long> whole_number(const std::string& text) {
  long value = 0;
  const auto end = text.data() + std::min(text.size(), text.find(','));  // "4,2" nests: the outer level counts
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && value > 0 ? std::optional(value) : std::nullopt;
}

Line threads_line(const JobFacts& job) {
  std::map<int, std::vector<Cpu>> node_cpus;
  std::map<int, std::int64_t> node_ranks;
  for (const auto& rank : job.ranks) {
    auto& cpus = node_cpus[rank.node];
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
    ++node_ranks[rank.node];
  }
  return combine("threads", job.ranks, [&](const RankFacts& rank) -> Finding {
    const std::int64_t ranks = node_ranks[rank.node];
    const std::int64_t share = std::max<std::int64_t>(
        std::min<std::int64_t>(std::ssize(cores_of(rank.cpus)), std::ssize(cores_of(node_cpus[rank.node])) / ranks), 1);
    const auto remedy = fmt::format("export OMP_NUM_THREADS={} (mpirun -x OMP_NUM_THREADS passes it to other nodes)", share);
    if (rank.omp_threads.empty()) {
      return ranks == 1 ? Finding{Result::pass, "OMP_NUM_THREADS is not set; " + count_text(share, "core")}
                        : Finding{Result::warn,
                                  "OMP_NUM_THREADS is not set: libraries may start a thread per core in every rank", remedy};
    }
    const auto threads = whole_number(rank.omp_threads);
    if (!threads) {
      return {Result::warn, fmt::format("OMP_NUM_THREADS = \"{}\" is not a number of threads", rank.omp_threads), remedy};
    }
    if (*threads > share) {
      return {Result::warn, fmt::format("OMP_NUM_THREADS = {}, but a rank has {}", *threads, count_text(share, "core")),
              remedy};
    }
    return {Result::pass, fmt::format("OMP_NUM_THREADS = {} of {} a rank", *threads, count_text(share, "core"))};
  });
}

}  // namespace

void check_cores(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(binding_line(job));
  lines.push_back(threads_line(job));
}

}  // namespace shardmark::app::doctor
