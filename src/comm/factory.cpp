#include "comm/factory.hpp"

#include <span>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "comm/checking_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/nccl_version.hpp"
#include "comm/self_communicator.hpp"
#include "comm/staged_communicator.hpp"
#include "device/host_device.hpp"
#include "device/visible_devices.hpp"
#include "world/world.hpp"
#ifdef SM_WITH_CUDA
#include "comm/nccl_communicator.hpp"
#endif

namespace shardmark::comm {

void CommunicatorStack::set_step(std::int64_t step) {
  if (checking_ != nullptr) {
    checking_->set_step(step);
  }
}

std::optional<NcclTransports> CommunicatorStack::nccl_transports() const {
  if (!nccl_log_) {
    return std::nullopt;
  }
  return NcclTransports{nccl_log_->problem(), parse_transport_log(nccl_log_->text())};
}

namespace {

/// What NCCL takes from the environment, before its first call. Its threads read there too, so nothing is set later.
DebugLog set_up_nccl_environment() {
  // Communicators are used from one host queue: devices start their work in its order, so that two never wait for each other.
  if (!base::environment_variable("NCCL_LAUNCH_ORDER_IMPLICIT")) {
    base::set_environment_variable("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  }
  return {};
}

/// Collective: every rank's device is its own, or sharing was asked for.
void check_devices(world::World& world, const FactoryOptions& options) {
  std::vector<std::string> uuids;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(options.device_uuid)))) {
    uuids.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::vector<std::string> hosts;
  for (int rank = 0; rank < world.size(); ++rank) {
    hosts.push_back(world.host_of(rank));
  }
  const auto shared = device::duplicate_devices(uuids, hosts);
  if (!shared.empty() && !options.may_share_device) {
    throw base::EnvironmentError(device::shared_devices_text(shared));
  }
}

std::unique_ptr<Communicator> make_nccl([[maybe_unused]] world::World& world, [[maybe_unused]] const FactoryOptions& options,
                                        [[maybe_unused]] std::unique_ptr<Communicator> host) {
#ifdef SM_WITH_CUDA
  if (options.device == nullptr) {
    throw base::EnvironmentError(
        "comm.backend = \"nccl\": no CUDA device is visible to this rank (see `shardmark doctor`); use \"auto\" or \"mpi\" to "
        "train on the CPU");
  }
  world.collectively("the version of NCCL", [] { check_nccl_version(); });
  check_devices(world, options);
  return std::make_unique<NcclCommunicator>(std::move(host), world, *options.device, "world", options.init_deadline_s);
#else
  throw base::EnvironmentError(
      "comm.backend = \"nccl\": this program was built without CUDA; use \"auto\" or \"mpi\", or build where a CUDA toolkit "
      "is");
#endif
}

}  // namespace

CommunicatorStack::CommunicatorStack(std::unique_ptr<CountingCommunicator> top, CheckingCommunicator* checking,
                                     std::string backend, device::Device* device, std::optional<DebugLog> nccl_log)
    : host_(device == nullptr ? device::make_host_device() : nullptr),
      device_(device == nullptr ? host_.get() : device),
      top_(std::move(top)),
      checking_(checking),
      backend_(std::move(backend)),
      nccl_log_(std::move(nccl_log)) {}

CommunicatorStack make_communicator(world::World& world, const FactoryOptions& options) {
  const bool nccl = options.backend == "nccl" || (options.backend == "auto" && options.device != nullptr);
  if (!nccl && options.backend != "auto" && options.backend != "mpi") {
    throw base::ConfigError("comm.backend = \"" + options.backend + "\": accepted are auto, nccl, mpi");
  }
  const bool plants = options.faults != nullptr && !options.faults->text().empty();
  const bool alone = world.size() == 1;
  const bool verifies = options.check.value_or(!nccl) && !alone;
  std::unique_ptr<Communicator> made;
  if (alone) {
    made = std::make_unique<SelfCommunicator>("world");
  } else {
    made = std::make_unique<MpiCommunicator>(CommHandle::duplicate(world), "world", MpiOptions{});
  }
  std::optional<DebugLog> nccl_log;
  if (nccl) {
    nccl_log = set_up_nccl_environment();
    made = make_nccl(world, options, std::move(made));
  } else if (options.device != nullptr) {
    made = std::make_unique<StagedCommunicator>(std::move(made), *options.device);
  }
  CheckingCommunicator* checking = nullptr;
  if (verifies || plants) {
    auto decorated = std::make_unique<CheckingCommunicator>(std::move(made), CommHandle::duplicate(world),
                                                            CheckingOptions{verifies, options.faults});
    checking = decorated.get();
    made = std::move(decorated);
  }
  return {std::make_unique<CountingCommunicator>(std::move(made)), checking,
          nccl    ? "nccl"
          : alone ? "self"
                  : "mpi",
          options.device, std::move(nccl_log)};
}

CommunicatorStack make_self_communicator(device::Device* device) {
  std::unique_ptr<Communicator> made = std::make_unique<SelfCommunicator>("self");
  if (device != nullptr) {
    made = std::make_unique<StagedCommunicator>(std::move(made), *device);
  }
  return {std::make_unique<CountingCommunicator>(std::move(made)), nullptr, "self", device};
}

}  // namespace shardmark::comm
