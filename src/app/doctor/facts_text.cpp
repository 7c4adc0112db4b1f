#include <nlohmann/json.hpp>

#include "app/doctor/gather.hpp"

namespace shardmark::app::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cpu, cpu, core)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Version, built, loaded)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NcclPaths, header, library)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryFacts, mpi, hdf5, libtorch, cuda_runtime, nccl, nccl_paths, hdf5_built_parallel,
                                   hdf5_loaded_parallel, files)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Device, name, uuid, pci, memory_bytes, capability, numa_node, peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, kernel_driver, driver_cuda, runtime_cuda, problem, devices, visible,
                                   nvml_driver, nvml_problem, nvml_unknown)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockFacts, backwards, resolution_s, cost_s, source)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts, ram_bytes, cgroup_bytes, address_bytes, locked_bytes, infiniband, shm_bytes,
                                   shm_free_bytes, governors, turbo)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, world_rank, node, node_rank, host, cpus, job_cpus, omp_threads, libraries, device,
                                   clock, host_facts, environment)

std::string to_text(const RankFacts& rank) {
  // Paths and variables need not be UTF-8; what is not shows as U+FFFD.
  return nlohmann::json(rank).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankFacts rank_facts_from(std::span<const std::byte> text) {
  const auto* begin = reinterpret_cast<const char*>(text.data());
  return nlohmann::json::parse(begin, begin + text.size()).get<RankFacts>();
}

}  // namespace shardmark::app::doctor
