#pragma once
// Jobs without a fault for tests of `doctor`, and what its lines must say once one is planted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/doctor/checks.hpp"

namespace shardmark::app::doctor {

inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

inline std::vector<Cpu> cpus(int first, int last) {
  std::vector<Cpu> all;
  for (int cpu = first; cpu <= last; ++cpu) {
    all.push_back({cpu, cpu});
  }
  return all;
}

inline RankFacts healthy_rank(int world_rank, int node, int node_rank) {
  RankFacts rank;
  rank.world_rank = world_rank;
  rank.node = node;
  rank.node_rank = node_rank;
  rank.host = "node" + std::to_string(node);
  rank.cpus = cpus(node_rank * 4, node_rank * 4 + 3);
  rank.job_cpus = cpus(0, 7);
  rank.omp_threads = "4";
  rank.libraries.mpi = {"Open MPI 4.1.4", "Open MPI 4.1.4"};
  rank.libraries.hdf5 = {"1.10.8", "1.10.8"};
  rank.libraries.libtorch = {"2.14.1", "2.14.1"};
  rank.libraries.cuda_runtime = {"13.0", "13.0"};
  rank.libraries.nccl = {"2.30.7", "2.30.7"};
  rank.libraries.files = {"/lib/libmpi.so.40.30.4", "/lib/libhdf5_serial.so.103.3.0", "/torch/libgomp.so.1", "/lib/libz.so.1"};
  rank.device = {"580.82", 13000, 13000, "", {{"H200", "GPU-a"}, {"H200", "GPU-b"}}, ""};
  rank.device.devices[0].peers = {1};
  rank.device.devices[1].peers = {0};
  rank.device.nvml_driver = "580.82";
  rank.clock = {false, 1e-9, 30e-9, "tsc"};
  rank.host_facts.ram_bytes = 64 * kGiB;
  rank.host_facts.shm_bytes = 32 * kGiB;
  rank.host_facts.shm_free_bytes = 32 * kGiB;
  rank.host_facts.infiniband = true;
  rank.host_facts.governors = {"performance"};
  return rank;
}

/// Two ranks on each of two nodes, each with a device and four cores: nothing to complain about.
inline JobFacts healthy() {
  JobFacts job;
  job.launcher.name = "mpirun of Open MPI";
  job.launcher.size_variable = "OMPI_COMM_WORLD_SIZE";
  job.launcher.size = 4;
  job.launcher.rank = 0;
  job.mpi_started = true;
  job.trains_on_devices = true;
  for (int rank = 0; rank < 4; ++rank) {
    job.ranks.push_back(healthy_rank(rank, rank / 2, rank % 2));
    // Devices of different nodes are different ones.
    for (auto& device : job.ranks.back().device.devices) {
      device.uuid += std::to_string(rank / 2);
    }
  }
  job.folder = {"/work", "", "ext4", 100 * kGiB, "", ""};
  job.network.pairs = {{0, 1, true, 1e-6, 5e9}, {0, 2, false, 30e-6, 0.9e9}};
  return job;
}

/// One rank on its own, no launcher, no device.
inline JobFacts lonely() {
  JobFacts job;
  job.ranks.push_back(healthy_rank(0, 0, 0));
  job.ranks.front().device = {};
  job.ranks.front().host_facts.infiniband = false;
  job.folder = healthy().folder;
  return job;
}

inline void set(RankFacts& rank, const std::string& name, const std::string& value) {
  rank.environment.emplace_back(name, value);
  std::ranges::sort(rank.environment);
}
inline void set_everywhere(JobFacts& job, const std::string& name, const std::string& value) {
  for (auto& rank : job.ranks) {
    set(rank, name, value);
  }
}

inline const Line& line_of(const std::vector<Line>& lines, const std::string& check) {
  const auto found = std::ranges::find(lines, check, &Line::check);
  if (found == lines.end()) {
    ADD_FAILURE() << "no line " << check;
    static const Line none;
    return none;
  }
  return *found;
}

/// The named lines have this result and say these texts, with a remedy; every other line is as good as before.
struct Expected {
  std::string check;
  Result result = Result::fail;
  std::string found;
  std::string remedy;
};
inline void expect_only(const JobFacts& job, const std::vector<Expected>& expected) {
  const auto lines = judge(job);
  for (const auto& [check, result, found, remedy] : expected) {
    const auto& line = line_of(lines, check);
    EXPECT_EQ(name_of(line.result), name_of(result)) << check << ": " << line.found;
    EXPECT_THAT(line.found, testing::HasSubstr(found)) << check;
    EXPECT_THAT(line.remedy, testing::HasSubstr(remedy)) << check;
    EXPECT_TRUE(line.result < Result::warn || !line.remedy.empty()) << check;
  }
  for (const auto& line : lines) {
    if (std::ranges::find(expected, line.check, &Expected::check) == expected.end()) {
      EXPECT_LT(line.result, Result::warn) << line.check << ": " << line.found;
    }
  }
}

}  // namespace shardmark::app::doctor
