#include "app/run_facts.hpp"

#include <H5public.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>

#include "app/build_info.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/random.hpp"
#include "comm/nccl_version.hpp"
#include "config/print.hpp"
#include "device/cpu_facts.hpp"
#include "device/torch_library.hpp"

namespace shardmark::app {
namespace {

/// Hash of the running program's file; "unknown" if it cannot be read.
std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string buffer(1 << 20, '\0');
  std::uint64_t hash = base::hash_text("");
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    hash = base::hash_text(std::string_view(buffer.data(), static_cast<std::size_t>(file.gcount())), hash);
  }
  return file.eof() ? fmt::format("{:016x}", hash) : "unknown";
}

std::string kernel_version() {
  utsname names{};
  return uname(&names) == 0 ? fmt::format("{} {}", names.sysname, names.release) : "unknown";
}

}  // namespace

record::RunAttributes make_attributes(const config::RunConfig& config, const world::World& world) {
  record::RunAttributes a;
  a.shardmark_version = kVersion;
  a.definition_version = config.definition_version;
  a.commit = kCommit;
  a.dirty = kDirty;
  a.binary_hash = hash_of_program();
  a.created = base::utc_timestamp();
  a.workload = config.workload.name;
  a.preset = config.preset;
  a.technique = config.technique.name;
  a.world_size = world.size();
  a.config_hash = fmt::format("{:016x}", config::config_hash(config));
  a.suite_id = base::environment_variable("SHARDMARK_SUITE_ID").value_or("");
  a.case_id = base::environment_variable("SHARDMARK_CASE_ID").value_or("");
  a.repeat = base::environment_number("SHARDMARK_REPEAT").value_or(0);
  a.job_id = base::environment_variable("SLURM_JOB_ID").value_or("");
  a.attempt = base::environment_number("SLURM_RESTART_COUNT").value_or(0);
  a.run_id = fmt::format("{:016x}", base::hash_text(fmt::format("{} {} {} {} {}", a.created, world.host(), getpid(),
                                                                base::now_s(), a.config_hash)));
  return a;
}

record::RankRow make_rank_row(const world::World& world, const RunDevice& device) {
  record::RankRow row;
  row.rank = world.rank();
  row.node = world.node();
  row.node_rank = world.node_rank();
  row.host = world.host();
  row.pid = getpid();
  if (device.get() != nullptr) {
    row.device_name = device.facts().name;
    row.uuid = device.facts().uuid;
    row.pci = device.facts().pci;
    row.numa_node = device.facts().numa_node;
  } else {
    row.device_name = device::cpu_model_name();
  }
  row.cpu_set = device::cpu_set_text();
  row.visible_devices = base::environment_variable("CUDA_VISIBLE_DEVICES").value_or("");
  return row;
}

std::vector<record::EnvironmentRow> make_environment(const std::string& planted_fault, const std::string& data_source,
                                                     const RunDevice& device, const std::string& backend) {
  std::vector<record::EnvironmentRow> rows;
  const auto add = [&](std::string_view name, const std::string& value) { rows.push_back({name, value}); };
  add("mpi", world::mpi_version_text());
  add("libtorch", TORCH_VERSION);
  add("hdf5", H5_VERS_INFO);
  add("compiler", kCompiler);
  add("kernel", kernel_version());
  add("device", device.get() != nullptr ? "cuda" : "cpu");
  add("communication", backend);
  const auto nccl = comm::nccl_versions();
  add("nccl_header", comm::nccl_version_text(nccl.built));
  add("nccl_library", comm::nccl_version_text(nccl.loaded));
  add("cuda_built", device::torch_build_setting("CUDA_VERSION"));
  if (device.get() != nullptr) {
    add("cuda_driver", fmt::format("{}", device.driver_cuda()));
    add("shared_device", device.may_be_shared() ? "1" : "0");
  }
  add("data", data_source);
#ifdef SM_FAULTS
  add("fault_points", "compiled in");
#else
  add("fault_points", "compiled out");
#endif
  if (!planted_fault.empty()) {
    add("SHARDMARK_FAULT", planted_fault);
  }
  for (const auto& [name, value] : base::recorded_environment()) {
    add(name, value);
  }
  return rows;
}

std::vector<record::ConfigKeyRow> make_config_rows(const config::RunConfig& config) {
  std::vector<record::ConfigKeyRow> rows;
  for (const auto& origin : config.origins) {
    rows.push_back({origin.key, origin.value, origin.origin});
  }
  return rows;
}

std::string default_record_name(const config::RunConfig& config, int world_size) {
  std::string name = fmt::format("{}-{}-n{}-{}", config.preset, config.technique.name, world_size, base::utc_compact());
  if (const auto job = base::environment_variable("SLURM_JOB_ID")) {
    name += fmt::format("-job{}.{}", *job, base::environment_number("SLURM_RESTART_COUNT").value_or(0));
  }
  return name + ".h5";
}

}  // namespace shardmark::app
