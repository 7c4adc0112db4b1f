// What `doctor` says of planted misconfigurations of storage, node, messages and environment.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "app/doctor/check_parts.hpp"
#include "tests/support/doctor_jobs.hpp"

namespace shardmark::app::doctor {
namespace {

TEST(Doctor, AFolderThatCannotBeUsed) {
  auto job = healthy();
  job.folder.problem = "Read-only file system";
  expect_only(job, {{"output folder", Result::fail, "/work: Read-only file system", "--folder"}});
  EXPECT_EQ(name_of(line_of(judge(job), "file locks").result), "skip");
  job.folder = {"/nowhere", "does not exist", "", -1, "", ""};
  expect_only(job, {{"output folder", Result::fail, "/nowhere: does not exist", "exists"}});
  EXPECT_EQ(name_of(line_of(judge(job), "free space").result), "skip");
}

TEST(Doctor, LittleFreeSpace) {
  auto job = healthy();
  job.folder.free_bytes = kGiB;
  expect_only(job, {});
  job.folder.free_bytes = kGiB - 1;
  expect_only(job, {{"free space", Result::warn, "free", "at least 1.00 GiB"}});
  job.folder.free_bytes = 64 << 20;
  expect_only(job, {{"free space", Result::warn, "64.00 MiB", "at least 1.00 GiB"}});
  job.folder.free_bytes = (64 << 20) - 1;
  expect_only(job, {{"free space", Result::fail, "free", "exit 10"}});
  job.folder.free_bytes = 0;
  expect_only(job, {{"free space", Result::fail, "0 B", "exit 10"}});
}

TEST(Doctor, FileSystemsThatLoseOrDelay) {
  auto job = healthy();
  for (const char* name : {"tmpfs", "ramfs"}) {
    job.folder.file_system = name;
    expect_only(job, {{"file system", Result::warn, "lives in memory", "on a disk"}});
  }
  for (const char* name : {"nfs", "cifs", "smb2"}) {
    job.folder.file_system = name;
    expect_only(job, {{"file system", Result::warn, name, "local or parallel file system"}});
  }
  job.folder.file_system = "lustre";
  expect_only(job, {});
}

TEST(Doctor, FoldersWithoutLocks) {
  auto job = healthy();
  job.folder.flock_problem = job.folder.file_lock_problem = "No locks available (errno 37)";
  expect_only(job,
              {{"file locks", Result::fail, "cannot lock files in /work: No locks available", "HDF5_USE_FILE_LOCKING=FALSE"}});
  // BEST_EFFORT forgives "not implemented" alone, not what NFS answers.
  set_everywhere(job, "HDF5_USE_FILE_LOCKING", "BEST_EFFORT");
  expect_only(job, {{"file locks", Result::fail, "BEST_EFFORT", "HDF5_USE_FILE_LOCKING=FALSE"}});
  job = healthy();
  job.folder.flock_problem = "No locks available";
  set_everywhere(job, "HDF5_USE_FILE_LOCKING", "FALSE");
  expect_only(job, {{"file locks", Result::warn, "does not lock", "unset"}});
  job = healthy();
  job.folder.file_lock_problem = "Function not implemented";
  expect_only(job, {{"file locks", Result::warn, "Function not implemented", "give each its own"}});
}

TEST(Doctor, SettingsOfFileLocking) {
  for (const char* odd : {"false", "no", "off", "best_effort", "2"}) {
    auto job = healthy();
    set_everywhere(job, "HDF5_USE_FILE_LOCKING", odd);
    expect_only(job, {{"file locks", Result::warn, "means nothing to HDF5", "in capitals"}});
  }
  for (const char* good : {"TRUE", "1", "BEST_EFFORT"}) {
    auto job = healthy();
    set_everywhere(job, "HDF5_USE_FILE_LOCKING", good);
    expect_only(job, {});
  }
}

TEST(Doctor, ClocksThatCannotTime) {
  auto job = healthy();
  job.ranks[1].clock.backwards = true;
  expect_only(job, {{"clock", Result::fail, "rank 1: tsc: the monotonic clock went backwards", "clocksource"}});
  job = healthy();
  job.ranks[0].clock = {false, 4e-3, 30e-9, "jiffies"};
  expect_only(job, {{"clock", Result::warn, "jiffies: resolution 4e+03 us", "tsc"}});
  job.ranks[0].clock = {false, 1e-9, 1.5e-6, "hpet"};
  expect_only(job, {{"clock", Result::warn, "hpet: a reading takes 1.5 us", "tsc"}});
}

TEST(Doctor, MemoryThatIsNotThere) {
  auto job = healthy();
  for (auto& rank : job.ranks) {
    rank.host_facts.cgroup_bytes = 2 * kGiB;  // for two ranks
  }
  expect_only(job, {});
  EXPECT_EQ(line_of(judge(job), "memory").found, "cgroup limit 2.00 GiB of 64.00 GiB");
  job.ranks[0].host_facts.cgroup_bytes -= 2;
  expect_only(job, {{"memory", Result::warn, "rank 0: cgroup limit 2.00 GiB of 64.00 GiB for 2 ranks", "--mem"}});
  job = healthy();
  job.ranks[0].host_facts.cgroup_bytes = 64 * kGiB;  // no limit: all there is
  EXPECT_EQ(line_of(judge(job), "memory").found, "64.00 GiB");
  job.ranks[0].host_facts.address_bytes = 8 * kGiB;
  expect_only(job, {{"memory", Result::warn, "address space limited to 8.00 GiB", "ulimit -v unlimited"}});
  job = healthy();
  job.ranks[2].host_facts.ram_bytes = kGiB;
  expect_only(job, {{"memory", Result::warn, "rank 2: 1.00 GiB for 2 ranks", "fewer ranks"}});
}

TEST(Doctor, SharedAndLockedMemory) {
  auto job = healthy();
  for (auto& rank : job.ranks) {
    rank.host_facts.shm_free_bytes = (32 << 20) - 1;
  }
  expect_only(job, {{"shared memory", Result::warn, "for 2 ranks", "--shm-size"}});
  job = healthy();
  job.ranks[0].host_facts.shm_bytes = -1;
  expect_only(job, {{"shared memory", Result::warn, "no /dev/shm", "mount a tmpfs"}});
  job = healthy();
  job.ranks[0].host_facts.locked_bytes = 64 << 10;
  expect_only(job, {{"locked memory", Result::warn, "64.00 KiB", "LimitMEMLOCK"}});
}

TEST(Doctor, GovernorsThatAddNoise) {
  auto job = healthy();
  job.ranks[3].host_facts.governors = {"performance", "powersave"};
  job.ranks[3].host_facts.turbo = "on";
  expect_only(job, {{"cpu frequency", Result::warn, "rank 3: governor performance, powersave, turbo on", "performance"}});
}

TEST(Doctor, MessagesThatAreSlowOrDoNotArrive) {
  auto job = healthy();
  job.network.pairs[0].latency_s = 21e-6;
  expect_only(job, {{"messages on a node", Result::warn, "8 bytes in 21.00 us", "at most 20 us and at least 1 GB/s"}});
  job.network.pairs[0].latency_s = 20e-6;
  expect_only(job, {});
  job.network.pairs[0].bytes_per_s = 0.9e9;
  expect_only(job, {{"messages on a node", Result::warn, "16 MiB at 0.90 GB/s", "shared memory"}});
  job.network.pairs.clear();
  job.network.problem = "waited 30.0 s in broadcast: silent is rank 1";
  expect_only(job, {{"messages", Result::fail, "silent is rank 1", "firewall"}});
}

TEST(Doctor, VariablesThatHarm) {
  const std::vector<std::array<std::string, 3>> harmful{{"CUDA_LAUNCH_BLOCKING", "1", "waits"},
                                                        {"NCCL_P2P_DISABLE", "1", "directly"},
                                                        {"NCCL_SHM_DISABLE", "1", "shared memory"},
                                                        {"NCCL_IB_DISABLE", "1", "sockets"},
                                                        {"NCCL_ALGO", "Ring", "order of sums"},
                                                        {"NCCL_PROTO", "LL", "speed"},
                                                        {"NCCL_DEBUG", "TRACE", "printed"},
                                                        {"OMPI_MCA_btl", "tcp,self", "shared memory"},
                                                        {"OMPI_MCA_btl", "^vader", "shared memory"},
                                                        {"OMPI_MCA_mpi_yield_when_idle", "1", "latency"},
                                                        {"MKL_VERBOSE", "1", "printed"},
                                                        {"MKL_CBWR", "COMPATIBLE", "bits"},
                                                        {"MALLOC_PERTURB_", "85", "filled"},
                                                        {"HDF5_DISABLE_VERSION_CHECK", "2", "unseen"},
                                                        {"SHARDMARK_FAULT", "0:comm:0:stop", "planted"}};
  for (const auto& [name, value, why] : harmful) {
    auto job = healthy();
    set_everywhere(job, name, value);
    expect_only(job, {{name, Result::warn, "= " + value + ": ", "unset"}, {name, Result::warn, why, ""}});
    EXPECT_EQ(line_of(judge(job), "environment").found, name + "=" + value);
  }
}

TEST(Doctor, VariablesThatDoNoHarmAreListed) {
  auto job = healthy();
  for (const auto& [name, value] :
       {std::pair("CUDA_LAUNCH_BLOCKING", "0"), std::pair("NCCL_DEBUG", "WARN"), std::pair("OMPI_MCA_btl", "vader,self"),
        std::pair("OMPI_MCA_btl", "^tcp"), std::pair("MKL_NUM_THREADS", "1")}) {
    job = healthy();
    set_everywhere(job, name, value);
    expect_only(job, {});
    EXPECT_EQ(line_of(judge(job), "environment").found, std::string(name) + "=" + value);
  }
  job = healthy();
  for (auto& rank : job.ranks) {  // mpirun's own, different on every rank
    set(rank, "OMPI_MCA_ess_base_vpid", std::to_string(rank.world_rank));
  }
  expect_only(job, {});
  EXPECT_THAT(line_of(judge(job), "environment").found, testing::HasSubstr("nothing set"));
}

TEST(Doctor, VariablesOfSomeRanksOnly) {
  auto job = healthy();
  set(job.ranks[3], "NCCL_DEBUG", "WARN");
  expect_only(job, {{"environment of ranks", Result::warn, "NCCL_DEBUG: not the same", "mpirun -x"}});
  job = healthy();
  set(job.ranks[1], "CUDA_LAUNCH_BLOCKING", "1");
  expect_only(job, {{"environment of ranks", Result::warn, "CUDA_LAUNCH_BLOCKING", ""},
                    {"CUDA_LAUNCH_BLOCKING", Result::warn, "= 1 on rank 1", "unset"}});
}

TEST(Doctor, ManyRanksAreNamedInShort) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
  std::vector<RankFacts> ranks(10);
  for (int i = 0; i < 10; ++i) {
    ranks[static_cast<std::size_t>(i)].world_rank = i;
  }
  const auto line = combine("x", ranks, [](const RankFacts& rank) -> Finding {
    return {rank.world_rank == 9 ? Result::fail : Result::skip, std::to_string(std::min(rank.world_rank, 5)),
            rank.world_rank > 7 ? "mend it" : ""};
  });
  EXPECT_EQ(line.found, "rank 0: 0; rank 1: 1; rank 2: 2; rank 3: 3; 2 further texts");
  EXPECT_EQ(name_of(line.result), "fail");
  EXPECT_EQ(line.remedy, "mend it");
}

}  // namespace
}  // namespace shardmark::app::doctor
