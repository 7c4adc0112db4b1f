// Processors, memory, clock and frequency of this node, from the kernel's files.

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <set>
#include <sstream>

#include "app/doctor/gather.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"

namespace shardmark::app::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCpus = 8192;

/// "0-3,8" as numbers.
std::vector<int> cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const auto first = number_in(part);
    const auto last = dash == std::string::npos ? first : number_in(part.substr(dash + 1));
    for (auto cpu = first; cpu >= 0 && cpu <= last; ++cpu) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }
  return cpus;
}

std::vector<int> own_cpus() {
  std::array<std::uint64_t, kMaxCpus / 64> mask{};
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) {
    for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
      if ((mask[cpu / 64] >> (cpu % 64) & 1U) != 0) {
        cpus.push_back(static_cast<int>(cpu));
      }
    }
  }
  return cpus;
}

std::vector<Cpu> with_cores(const std::vector<int>& cpus) {
  std::vector<Cpu> all;
  for (const int cpu : cpus) {
    const auto siblings = first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    const auto first = number_in(siblings);
    all.push_back({cpu, first < 0 ? cpu : static_cast<int>(first)});
  }
  return all;
}

std::vector<int> job_cpus() {
  for (const auto& folder : cgroup_folders("cpuset")) {
    for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"}) {
      if (const auto list = first_line(folder + name); !list.empty()) {
        return cpu_list(list);
      }
    }
  }
  return cpu_list(first_line("/sys/devices/system/cpu/online"));
}

std::int64_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(limit.rlim_cur);
}

ClockFacts clock_facts() {
  constexpr int kReadings = 1000;
  constexpr int kRounds = 10;
  ClockFacts facts;
  timespec resolution{};
  if (clock_getres(CLOCK_MONOTONIC, &resolution) == 0) {
    facts.resolution_s = static_cast<double>(resolution.tv_sec) + static_cast<double>(resolution.tv_nsec) * 1e-9;
  }
  facts.cost_s = 1;
  for (int round = 0; round < kRounds; ++round) {  // the fastest round: others were interrupted
    const double start = base::now_s();
    double last = start;
    for (int i = 0; i < kReadings; ++i) {
      const double now = base::now_s();
      facts.backwards = facts.backwards || now < last;
      last = now;
    }
    facts.cost_s = std::min(facts.cost_s, (last - start) / kReadings);
  }
  facts.source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  return facts;
}

void frequency_facts(const std::vector<Cpu>& cpus, HostFacts& facts) {
  std::set<std::string> governors;
  for (const auto& cpu : cpus) {
    if (const auto governor = first_line(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu.cpu));
        !governor.empty()) {
      governors.insert(governor);
    }
  }
  facts.governors = {governors.begin(), governors.end()};
  if (const auto off = first_line("/sys/devices/system/cpu/intel_pstate/no_turbo"); !off.empty()) {
    facts.turbo = off == "0" ? "on" : "off";
  } else if (const auto boost = first_line("/sys/devices/system/cpu/cpufreq/boost"); !boost.empty()) {
    facts.turbo = boost == "1" ? "on" : "off";
  }
}

}  // namespace

void gather_host(RankFacts& rank) {
  std::array<char, 256> name{};
  rank.host = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
  rank.cpus = with_cores(own_cpus());
  rank.job_cpus = with_cores(job_cpus());
  rank.omp_threads = base::environment_variable("OMP_NUM_THREADS").value_or("");
  rank.clock = clock_facts();
  auto& facts = rank.host_facts;
  const auto memory = host_memory();
  facts.ram_bytes = memory.total_bytes;
  facts.cgroup_bytes = memory.limit_bytes;
  facts.address_bytes = limit_of(RLIMIT_AS);
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  std::error_code none;
  facts.infiniband = fs::exists("/sys/class/infiniband", none) && !fs::is_empty("/sys/class/infiniband", none);
  struct statvfs shm {};
  if (fs::is_directory("/dev/shm", none) && statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  frequency_facts(rank.cpus, facts);
}

RankFacts gather_rank() {
  RankFacts rank;
  gather_host(rank);
  rank.libraries = gather_libraries();
  rank.device = gather_devices();
  return rank;
}

}  // namespace shardmark::app::doctor
