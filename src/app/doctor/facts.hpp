#pragma once
// What `doctor` found out about a job, as plain values: gathered in one place, judged in another. -1 and "" mean that
// nobody says.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::app::doctor {

struct LauncherFacts {
  std::string name;  // "" without a launcher
  std::string size_variable;
  std::int64_t size = 0;
  std::int64_t rank = -1;
  std::string problem;  // why a command that needs MPI would refuse to start
  std::string remedy;
  std::int64_t srun_tasks = -1;  // SLURM_STEP_NUM_TASKS
};

/// A logical processor and the core it belongs to, named by the core's first processor.
struct Cpu {
  int cpu = 0;
  int core = 0;
};

/// What a library was when this program was compiled, and what is loaded.
struct Version {
  std::string built;
  std::string loaded;
};

struct NcclPaths {
  std::string header;   // compiled against
  std::string library;  // loaded
};

struct LibraryFacts {
  Version mpi;
  Version hdf5;
  Version libtorch;
  Version cuda_runtime;
  Version nccl;
  NcclPaths nccl_paths;
  bool hdf5_built_parallel = false;
  bool hdf5_loaded_parallel = false;
  std::vector<std::string> files;  // every shared library mapped into the process, once
};

struct Device {
  std::string name;
  std::string uuid;
  std::string pci = "";
  std::int64_t memory_bytes = -1;
  std::string capability = "";  // compute capability, "9.0"
  int numa_node = -1;
  std::vector<int> peers = {};  // ordinals of visible devices whose memory it reaches directly
};

struct DeviceFacts {
  std::string kernel_driver;  // version of the NVIDIA kernel module; "" without one
  int driver_cuda = 0;        // newest CUDA that the driver supports, as 13000; 0 = unknown
  int runtime_cuda = 0;       // of the loaded CUDA runtime; 0 = none is loaded
  std::string problem;        // what the driver answered, if it refused
  std::vector<Device> devices;
  std::string visible;            // CUDA_VISIBLE_DEVICES
  std::string nvml_driver = "";   // version of the driver by NVML; "" where NVML does not answer
  std::string nvml_problem = "";  // why NVML is not there
  int nvml_unknown = 0;           // visible devices that NVML does not know
};

struct ClockFacts {
  bool backwards = false;
  double resolution_s = 0;
  double cost_s = 0;   // of one reading
  std::string source;  // the kernel's clock source
};

struct HostFacts {
  std::int64_t ram_bytes = -1;
  std::int64_t cgroup_bytes = -1;   // -1: no limit
  std::int64_t address_bytes = -1;  // ulimit -v, -1: no limit
  std::int64_t locked_bytes = -1;   // ulimit -l, -1: no limit
  bool infiniband = false;
  std::int64_t shm_bytes = -1;  // size of /dev/shm, -1: there is none
  std::int64_t shm_free_bytes = -1;
  std::vector<std::string> governors;  // of the processors allowed; empty: not readable
  std::string turbo;                   // on, off, ""
};

struct RankFacts {
  int world_rank = 0;
  int node = 0;
  int node_rank = 0;
  std::string host;
  std::vector<Cpu> cpus;      // this rank may run on
  std::vector<Cpu> job_cpus;  // this node gives the job
  std::string omp_threads;    // OMP_NUM_THREADS
  LibraryFacts libraries;
  DeviceFacts device;
  ClockFacts clock;
  HostFacts host_facts;
  std::vector<std::pair<std::string, std::string>> environment;  // what changes results or speed, sorted by name
};

/// The folder that records would be written to, as rank 0 sees it.
struct FolderFacts {
  std::string path;
  std::string problem;  // why nothing can be written there
  std::string file_system;
  std::int64_t free_bytes = -1;
  std::string flock_problem;      // of the lock that HDF5 takes; "" = it was given
  std::string file_lock_problem;  // of the lock that tells runs apart
};

/// Messages between two ranks over the communicator that runs use.
struct PairFacts {
  int first = 0;
  int second = 1;
  bool same_node = true;
  double latency_s = 0;  // one way, 8 bytes
  double bytes_per_s = 0;
};

struct NetworkFacts {
  std::vector<PairFacts> pairs;
  std::string problem;  // why messages did not arrive
};

struct JobFacts {
  LauncherFacts launcher;
  bool mpi_started = false;
  std::string world_problem;  // why the world of ranks could not be made
  std::vector<RankFacts> ranks;
  FolderFacts folder;
  NetworkFacts network;
  bool trains_on_devices = false;  // whether this build would use a device at all
};

}  // namespace shardmark::app::doctor
