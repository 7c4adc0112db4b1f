// Environment variables that change results or speed.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

struct Harm {
  std::string_view name;
  bool (*harms)(std::string_view value);
  std::string_view why;
  std::string_view remedy;
};

bool is_on(std::string_view value) {
  return value != "0";
}
bool always(std::string_view) {
  return true;
}
bool is_trace(std::string_view value) {
  return value == "TRACE" || value == "trace";
}
/// A list of Open MPI's transports that leaves shared memory out: "tcp,self", "^vader".
bool drops_shared_memory(std::string_view value) {
  const bool excludes = value.starts_with('^');
  const bool named = value.find("vader") != std::string_view::npos || value.find("sm") != std::string_view::npos;
  return excludes == named;
}

std::vector<Harm> harms() {
  return {
      {"CUDA_LAUNCH_BLOCKING", is_on, "every kernel launch waits for the kernel's end", "unset it: it is for debugging"},
      {"NCCL_P2P_DISABLE", is_on, "devices of a node do not talk directly", "unset it"},
      {"NCCL_SHM_DISABLE", is_on, "ranks of a node do not talk through shared memory", "unset it"},
      {"NCCL_IB_DISABLE", is_on, "messages between nodes go over sockets", "unset it where there is InfiniBand or RoCE"},
      {"NCCL_ALGO", always, "fixes the algorithm, and with it speed and order of sums",
       "unset it, or set it in every run compared"},
      {"NCCL_PROTO", always, "fixes the protocol, and with it the speed", "unset it, or set it in every run compared"},
      {"NCCL_DEBUG", is_trace, "every call is printed", "unset it, or use WARN"},
      {"NCCL_MULTI_RANK_GPU_ENABLE", is_on, "ranks may share a device: right results, no valid speed",
       "unset it unless correctness alone is tested"},
      {"OMPI_MCA_btl", drops_shared_memory, "ranks of a node do not talk through shared memory",
       "unset it, or add vader (sm in Open MPI 5)"},
      {"OMPI_MCA_mpi_yield_when_idle", is_on, "waiting ranks give their core away: latency grows",
       "unset it unless ranks share cores"},
      {"MKL_VERBOSE", is_on, "every product is printed", "unset it"},
      {"MKL_CBWR", always, "chooses MKL's instructions, and with them bits and speed",
       "unset it, or set it in every run compared"},
      {"MALLOC_CHECK_", is_on, "every allocation is checked", "unset it: it is for debugging"},
      {"MALLOC_PERTURB_", is_on, "every allocation is filled", "unset it: it is for debugging"},
      {"HDF5_DISABLE_VERSION_CHECK", is_on, "an HDF5 other than the compiled one may be used unseen", "unset it"},
      {"SHARDMARK_FAULT", always, "a fault is planted: runs are meant to go wrong", "unset it"},
  };
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// What mpirun sets for its own ranks: no news, and different on every rank.
bool is_the_launchers(std::string_view name) {
  return starts_with_any(name, {"OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
                                "OMPI_MCA_shmem_RUNTIME", "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe",
                                "OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_prte_", "OMPI_MCA_plm_"});
}

/// Variables that are set on some ranks only, or to different values. Processors and devices may differ.
std::vector<std::string> uneven(const std::vector<RankFacts>& ranks) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::size_t> setters;
  for (const auto& rank : ranks) {
    for (const auto& [name, value] : rank.environment) {
      if (!is_the_launchers(name) && !starts_with_any(name, {"CUDA_VISIBLE", "GOMP_CPU", "OMP_PLACES"})) {
        values[name].insert(value);
        ++setters[name];
      }
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, distinct] : values) {
    if (distinct.size() > 1 || setters[name] < ranks.size()) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace

void check_environment(const JobFacts& job, std::vector<Line>& lines) {
  const auto line = combine("environment", job.ranks, [](const RankFacts& rank) -> Finding {
    std::vector<std::string> set;
    for (const auto& [name, value] : rank.environment) {
      if (!is_the_launchers(name)) {
        set.push_back(fmt::format("{}={}", name, value));
      }
    }
    return {Result::pass, set.empty() ? "nothing set that changes results or speed" : base::join(set, " ")};
  });
  lines.push_back(line);
  if (const auto names = uneven(job.ranks); !names.empty()) {
    lines.push_back({"environment of ranks", Result::warn, base::join(names, ", ") + ": not the same on all ranks",
                     "set them for the whole job (mpirun -x NAME, srun --export=ALL)"});
  }
  for (const auto& harm : harms()) {
    std::vector<int> ranks;
    std::string shown;
    for (const auto& rank : job.ranks) {
      const auto value = variable(rank, std::string(harm.name));
      if (!value.empty() && harm.harms(value)) {
        ranks.push_back(rank.world_rank);
        shown = shown.empty() ? value : shown;
      }
    }
    if (!ranks.empty()) {
      const auto where = ranks.size() == job.ranks.size() ? "" : fmt::format(" on {}", ranks_text(ranks));
      lines.push_back(
          {std::string(harm.name), Result::warn, fmt::format("= {}{}: {}", shown, where, harm.why), std::string(harm.remedy)});
    }
  }
}

}  // namespace shardmark::app::doctor
