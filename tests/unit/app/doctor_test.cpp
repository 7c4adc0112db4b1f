// What `doctor` says of planted misconfigurations of launch, cores, devices and libraries: the right line, verdict and
// remedy, and nothing else.

#include <gtest/gtest.h>

#include <string>

#include "tests/support/doctor_jobs.hpp"

namespace shardmark::app::doctor {
namespace {

TEST(Doctor, AHealthyJobPassesEverything) {
  expect_only(healthy(), {});
  const auto lines = judge(healthy());
  EXPECT_EQ(line_of(lines, "ranks per node").found, "2 ranks on 8 cores") << "those of both ranks";
  EXPECT_EQ(name_of(worst(lines)), "pass");
  EXPECT_EQ(line_of(lines, "binding").found, "ranks 0, 2: bound to cpu 0-3; ranks 1, 3: bound to cpu 4-7");
  for (const auto& line : lines) {
    EXPECT_EQ(name_of(line.result), "pass") << line.check << ": " << line.found;
    EXPECT_EQ(line.remedy, "") << line.check;
  }
}

TEST(Doctor, WhatDoesNotExistIsSkippedWithTheReason) {
  auto job = lonely();
  job.ranks.front().cpus = job.ranks.front().job_cpus;
  job.ranks.front().host_facts.shm_free_bytes = 0;  // nobody to share it with
  const auto lines = judge(job);
  EXPECT_EQ(line_of(lines, "binding").found, "may run on all cpus: 0-7");
  for (const char* check : {"world size", "cuda driver", "devices", "peer access", "nvml", "locked memory", "messages"}) {
    EXPECT_EQ(name_of(line_of(lines, check).result), "skip") << check;
    EXPECT_NE(line_of(lines, check).found, "") << check;
  }
  EXPECT_EQ(name_of(worst(lines)), "pass");
}

TEST(Doctor, SingletonsOfABatchJob) {
  auto job = lonely();
  job.launcher.problem = "SLURM_NTASKS = 4, but no MPI launcher started this process";
  job.launcher.remedy = "Start it with mpirun";
  expect_only(job, {{"launcher", Result::fail, "SLURM_NTASKS = 4", "mpirun"}});
  EXPECT_EQ(name_of(worst(judge(job))), "fail");
  job.launcher.srun_tasks = 4;
  expect_only(job, {{"launcher", Result::fail, "srun started 4 tasks without PMI", "srun --mpi=pmix"}});
}

TEST(Doctor, SrunWithPmixIsALauncher) {
  auto job = healthy();
  job.launcher = {"srun with PMIx", "SLURM_STEP_NUM_TASKS", 4, 0, "", "", 4};
  expect_only(job, {});
  EXPECT_EQ(line_of(judge(job), "launcher").found, "srun with PMIx, SLURM_STEP_NUM_TASKS = 4");
  EXPECT_EQ(line_of(judge(job), "world size").found, "4 ranks on 2 nodes");
  job.launcher.size_variable = "";  // a launcher that does not tell the size
  job.launcher.size = 0;
  expect_only(job, {});
}

TEST(Doctor, AWorldOfAnotherSizeThanTheLauncherSays) {
  auto job = healthy();
  job.launcher.size = 8;
  expect_only(job, {{"world size", Result::fail, "OMPI_COMM_WORLD_SIZE = 8, but MPI sees 4 ranks", "mpirun of the MPI"}});
  job = lonely();
  job.world_problem = "OMPI_COMM_WORLD_SIZE = 4, but MPI sees 1 rank";
  expect_only(job, {{"world size", Result::fail, "MPI sees 1 rank", "mpirun of the MPI"}});
}

TEST(Doctor, MoreRanksThanCores) {
  auto job = healthy();
  for (auto& rank : job.ranks) {
    rank.cpus = rank.job_cpus = cpus(0, rank.node == 0 ? 0 : 7);
    rank.omp_threads = "1";
  }
  expect_only(job, {{"ranks per node", Result::warn, "oversubscribed: 2 ranks on 1 core of node0", "fewer ranks"}});
}

TEST(Doctor, RanksOnTheHardwareThreadsOfOneCore) {
  auto job = healthy();
  for (auto& rank : job.ranks) {
    rank.cpus = rank.job_cpus = {{0, 0}, {1, 0}};
    rank.omp_threads = "1";
  }
  expect_only(job, {{"ranks per node", Result::warn, "hardware threads", "nomultithread"}});
}

TEST(Doctor, UnevenNodes) {
  auto job = healthy();
  job.ranks.pop_back();
  job.launcher.size = 3;
  job.ranks.back().omp_threads = "4";
  expect_only(job, {{"ranks per node", Result::warn, "1 to 2 ranks a node", "ntasks-per-node"}});
}

TEST(Doctor, RanksBoundToOneCoreAlthoughOthersAreFree) {
  auto job = healthy();
  for (auto& rank : job.ranks) {
    rank.cpus = cpus(3, 3);
    rank.omp_threads = "1";
  }
  expect_only(job, {{"binding", Result::warn, "on node1 rank 3 must share a core with another rank, although 7 of 8 cores",
                     "--bind-to core"},
                    {"ranks per node", Result::warn, "oversubscribed", ""}});
}

TEST(Doctor, OverlappingCpuSetsAreFineWhileEveryRankFindsACore) {
  auto job = healthy();
  job.ranks[0].cpus = cpus(0, 1);
  job.ranks[1].cpus = cpus(0, 0);  // rank 0 must make room
  job.ranks[0].omp_threads = job.ranks[1].omp_threads = "1";
  expect_only(job, {});
  // Three ranks, each alone on its core or with room elsewhere: one too many on two cores.
  job.ranks[2].node = 0;
  job.ranks[2].cpus = cpus(1, 1);
  job.ranks[2].omp_threads = "1";
  job.ranks[3].omp_threads = "1";
  for (auto& rank : job.ranks) {
    rank.device = {};
  }
  expect_only(job, {{"binding", Result::warn, "on node0 rank 2 must share a core with another rank, although 6 of 8", ""},
                    {"ranks per node", Result::warn, "oversubscribed: 3 ranks on 2 cores of node0; 1 to 3", ""}});
}

TEST(Doctor, ThreadsThatDoNotFitTheCores) {
  auto job = healthy();
  job.ranks[1].omp_threads = "64";
  expect_only(job, {{"threads", Result::warn, "rank 1: OMP_NUM_THREADS = 64, but a rank has 4 cores", "OMP_NUM_THREADS=4"}});
  job.ranks[1].omp_threads = "";
  expect_only(job, {{"threads", Result::warn, "OMP_NUM_THREADS is not set", "OMP_NUM_THREADS=4"}});
  for (const char* nonsense : {"many", "0", "-1", "4x"}) {
    job.ranks[1].omp_threads = nonsense;
    expect_only(job, {{"threads", Result::warn, "is not a number of threads", "OMP_NUM_THREADS=4"}});
  }
  job.ranks[1].omp_threads = "4,2";  // nested levels
  expect_only(job, {});
  // Ranks that are not bound share the node's cores among them.
  for (auto& rank : job.ranks) {
    rank.cpus = rank.job_cpus;
    rank.omp_threads = "5";
  }
  expect_only(job, {{"threads", Result::warn, "a rank has 4 cores", ""}});
}

TEST(Doctor, ADriverOlderThanTheRuntime) {
  auto job = healthy();
  job.ranks[2].device.driver_cuda = 12080;
  expect_only(job, {{"cuda driver", Result::fail, "supports CUDA 12.8, the runtime is 13.0", "update the NVIDIA driver"}});
  job.trains_on_devices = false;  // a build that uses no device
  expect_only(job, {{"cuda driver", Result::warn, "supports CUDA 12.8",
                     "580 (CUDA 13) or newer, or use a LibTorch built for CUDA 12"}});
  for (auto& rank : job.ranks) {
    rank.device.driver_cuda = 13000;
    rank.device.runtime_cuda = 13020;
  }
  expect_only(job, {{"cuda driver", Result::warn, "the runtime is 13.2", "minor-version"}});
}

TEST(Doctor, ADriverThatDoesNotAnswer) {
  auto job = healthy();
  job.ranks[0].device.problem = "cuInit returned error 803";
  expect_only(job, {{"cuda driver", Result::fail, "error 803", "libcuda.so.1"}});
  for (auto& rank : job.ranks) {  // a container that does not show the driver's library
    rank.device = {"580.82", 0, 13000, "its library libcuda.so.1 is not found", {}, ""};
  }
  expect_only(job, {{"cuda driver", Result::fail, "580.82: its library", "container"},
                    {"devices", Result::fail, "a driver, but no device", "--gpus-per-task=1"}});
}

TEST(Doctor, DevicesThatRanksShareOrLack) {
  auto job = healthy();
  for (auto& rank : job.ranks) {  // each sees one device, both of a node the same
    rank.device.devices.resize(1);
    rank.device.visible = "0";
  }
  expect_only(job, {{"devices", Result::fail, "ranks 0-1 would share device GPU-a0", "--gpus-per-task=1"}});
  set_everywhere(job, "NCCL_MULTI_RANK_GPU_ENABLE", "1");
  expect_only(job, {{"devices", Result::warn, "would share", ""},
                    {"NCCL_MULTI_RANK_GPU_ENABLE", Result::warn, "no valid speed", "unset"}});
  job = healthy();
  job.ranks[1].device.devices.clear();
  job.ranks[1].device.visible = "7";
  expect_only(job,
              {{"devices", Result::fail, "rank 1: no device visible, CUDA_VISIBLE_DEVICES = \"7\"", "CUDA_VISIBLE_DEVICES"}});
  job = healthy();
  job.ranks[1].device.visible = "0,1,0";
  expect_only(job, {{"devices", Result::fail, "names 0 twice", "once"}});
  job = healthy();
  job.ranks[2] = healthy_rank(2, 0, 2);  // a third rank on the first node
  const auto line = line_of(judge(job), "devices");
  EXPECT_EQ(name_of(line.result), "fail");
  EXPECT_THAT(line.found, testing::HasSubstr("ranks 0-2: 2 devices for 3 ranks of the node"));
  EXPECT_THAT(line.remedy, testing::HasSubstr("one rank a device"));
}

TEST(Doctor, DevicesAreDescribed) {
  auto job = lonely();
  job.ranks.front().device = {"580.82", 13000, 13000, "", {{"H200", "GPU-a", "0000:3b:00.0", 141 * kGiB, "9.0", 1, {1}}}, ""};
  EXPECT_EQ(line_of(judge(job), "devices").found,
            "1 x H200 (141.00 GiB, compute capability 9.0): 0 = GPU-a at 0000:3b:00.0 on NUMA node 1; this build trains on the "
            "CPU");
}

TEST(Doctor, DevicesThatDoNotReachEachOther) {
  auto job = healthy();
  EXPECT_EQ(line_of(judge(job), "peer access").found, "all 2 devices reach each other");
  job.ranks[1].device.devices[0].peers.clear();
  expect_only(job, {{"peer access", Result::warn, "rank 1: no direct access between devices 0 and 1", "nvidia-smi topo"}});
  for (auto& rank : job.ranks) {
    rank.device.devices.erase(rank.device.devices.begin() + (rank.node_rank == 0 ? 1 : 0));
  }
  EXPECT_EQ(name_of(line_of(judge(job), "peer access").result), "skip") << "of one visible device nothing is known";
}

TEST(Doctor, NvmlThatIsMissingOrKnowsOtherDevices) {
  auto job = healthy();
  EXPECT_EQ(line_of(judge(job), "nvml").found, "of NVIDIA driver 580.82");
  job.ranks[0].device.nvml_problem = "libnvidia-ml.so.1: cannot open shared object file";
  expect_only(job, {{"nvml", Result::warn, "rank 0: libnvidia-ml.so.1: cannot open", "utility"}});
  job = healthy();
  job.ranks[3].device.nvml_unknown = 1;
  expect_only(job, {{"nvml", Result::warn, "rank 3: NVML does not know 1 of 2 devices", "driver's own"}});
  job = lonely();
  job.ranks.front().device.nvml_problem = "libnvidia-ml.so.1: cannot open shared object file";
  EXPECT_EQ(name_of(line_of(judge(job), "nvml").result), "skip") << "without a device nobody misses it";
}

TEST(Doctor, LibrariesOtherThanTheCompiledOnes) {
  auto job = healthy();
  const auto load = [&](Version LibraryFacts::*which, const std::string& version) {
    job = healthy();
    for (auto& rank : job.ranks) {
      (rank.libraries.*which).loaded = version;
    }
  };
  load(&LibraryFacts::mpi, "Open MPI 5.0.3");
  expect_only(job,
              {{"mpi", Result::fail, "compiled against Open MPI 4.1.4, loaded is Open MPI 5.0.3", "build shardmark anew"}});
  load(&LibraryFacts::mpi, "Open MPI 4.1.6");
  expect_only(job, {{"mpi", Result::warn, "loaded is Open MPI 4.1.6", ""}});
  load(&LibraryFacts::mpi, "MPICH 4.1.4");
  expect_only(job, {{"mpi", Result::fail, "loaded is MPICH", ""}});
  load(&LibraryFacts::hdf5, "1.10.9");
  expect_only(job, {{"hdf5", Result::fail, "loaded is 1.10.9", "LD_LIBRARY_PATH"}});
  load(&LibraryFacts::libtorch, "2.14.0");
  expect_only(job, {{"libtorch", Result::fail, "loaded is 2.14.0", ""}});
  load(&LibraryFacts::nccl, "2.28.9");
  expect_only(job, {{"nccl", Result::fail, "compiled against 2.30.7, loaded is 2.28.9", ""}});
  for (auto& rank : job.ranks) {
    rank.libraries.nccl_paths = {"/venv/nccl.h", "/module/libnccl.so.2"};
  }
  expect_only(job, {{"nccl", Result::fail, "; header /venv/nccl.h, library /module/libnccl.so.2", ""}});
  for (const bool device : {false, true}) {  // what agrees is not yet what works
    job = healthy();
    for (auto& rank : job.ranks) {
      rank.device.devices.resize(device ? 1 : 0);
    }
    const auto lines = judge(job);
    const auto line = std::ranges::find(lines, "nccl", &Line::check);
    EXPECT_EQ(line->result, Result::pass);
    EXPECT_EQ(line->found, std::string("2.30.7: header and library agree; not tried") +
                               (device ? " here: `shardmark comm` does" : ": no device"));
  }
  job = healthy();
  job.ranks[3].libraries.mpi = {"Open MPI 4.1.5", "Open MPI 4.1.5"};  // another build on that node
  expect_only(job, {{"mpi", Result::fail, "ranks 0-2: Open MPI 4.1.4; rank 3: Open MPI 4.1.5", "same MPI on all nodes"}});
  job = healthy();
  job.ranks[0].libraries.hdf5_loaded_parallel = true;
  expect_only(job, {{"hdf5 kind", Result::fail, "against a serial HDF5, loaded is a parallel one", "HDF5_ROOT"}});
}

TEST(Doctor, TwoCopiesOfALibrary) {
  auto job = healthy();
  const auto add = [&](const std::string& path) {
    job = healthy();
    job.ranks[1].libraries.files.push_back(path);
  };
  add("/opt/lib/libmpi.so.12");
  expect_only(job, {{"duplicate libraries", Result::fail, "rank 1: MPI twice: /lib/libmpi.so.40.30.4 and /opt/lib/libmpi.so.12",
                     "LD_PRELOAD"}});
  add("/wheel/libhdf5-3f2a91bc.so.310");
  expect_only(job, {{"duplicate libraries", Result::fail, "HDF5 twice", "LD_LIBRARY_PATH"}});
  add("/intel/libiomp5.so");
  expect_only(job, {{"duplicate libraries", Result::warn, "the OpenMP runtime twice", "keep one"}});
  add("/opt/libnccl.so.2.28.9");
  job.ranks[1].libraries.files.push_back("/venv/libnccl.so.2");
  expect_only(job, {{"duplicate libraries", Result::fail, "libnccl twice", "LD_PRELOAD"}});
  add("/copy/libz.so.1.2.13");
  expect_only(job, {{"duplicate libraries", Result::warn, "libz twice", "keep one"}});
  add("/lib/libmpi_cxx.so.40");  // a part of the same MPI
  expect_only(job, {});
}

}  // namespace
}  // namespace shardmark::app::doctor
