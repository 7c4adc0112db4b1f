#pragma once
// The one place that chooses an implementation of Communicator.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/fault.hpp"
#include "comm/communicator.hpp"
#include "comm/counting_communicator.hpp"
#include "comm/debug_log.hpp"
#include "comm/transport_log.hpp"
#include "device/device.hpp"

namespace shardmark::world {
class World;
}

namespace shardmark::comm {

class CheckingCommunicator;

struct FactoryOptions {
  /// auto: nccl where training runs on a device, else mpi. mpi on a device copies through host memory.
  std::string backend = "auto";
  /// Ranks agree on every collective before it starts. Absent: over host memory only, for over NCCL hosts would wait for
  /// each other in every step.
  std::optional<bool> check = {};
  base::FaultPlan* faults = nullptr;  // lent for the communicator's life; nullptr: none
  // Where buffers lie; lent. nullptr: host memory.
  device::Device* device = nullptr;
  std::string device_uuid = "";
  bool may_share_device = false;  // several ranks on one device: right results, no throughput
  double init_deadline_s = 600;   // of NCCL
};

/// Which way NCCL's messages go, by its own log.
struct NcclTransports {
  std::string unknown_because;  // "" if they are known
  TransportLog log;             // of the communicator over the world: its ranks are the world's
};

/// Counting over checking (where there is one) over the implementation.
class CommunicatorStack {
 public:
  /// `device`: nullptr for host memory. `nccl_log`: where NCCL carries the messages.
  CommunicatorStack(std::unique_ptr<CountingCommunicator> top, CheckingCommunicator* checking, std::string backend,
                    device::Device* device = nullptr, std::optional<DebugLog> nccl_log = std::nullopt);

  [[nodiscard]] Communicator& communicator() { return *top_; }
  /// The implementation alone, neither counted nor checked: only where nothing is checked.
  [[nodiscard]] Communicator& undecorated() {
    SM_CHECK(checking_ == nullptr, "a checked communicator is used through its checks");
    return top_->inner();
  }
  /// Of this communicator and of all that are split from it.
  [[nodiscard]] CollectiveCounts& counts() { return top_->counts(); }
  /// What carries the messages: "nccl", "mpi", or "self" with one rank.
  [[nodiscard]] const std::string& backend() const { return backend_; }
  [[nodiscard]] bool checked() const { return checking_ != nullptr; }
  /// Absent where NCCL carries nothing. NCCL connects two ranks when they first need each other: ask after the collectives.
  [[nodiscard]] std::optional<NcclTransports> nccl_transports() const;
  /// Where buffers lie.
  [[nodiscard]] device::Device& device() { return *device_; }
  /// The training step that planted faults count by.
  void set_step(std::int64_t step);

 private:
  std::unique_ptr<device::Device> host_;  // unless a device was lent
  device::Device* device_;
  std::unique_ptr<CountingCommunicator> top_;
  CheckingCommunicator* checking_;
  std::string backend_;
  std::optional<DebugLog> nccl_log_;
};

/// Collective over the world; `world` must outlive the stack. One rank needs no messages: it gets a SelfCommunicator.
/// NCCL is used with one rank, too. Throws EnvironmentError (exit 5) if this build or machine lacks the backend, if NCCL's
/// library is another than its header, or if ranks share a device.
[[nodiscard]] CommunicatorStack make_communicator(world::World& world, const FactoryOptions& options);

/// One rank alone, whatever the world: every rank that calls it works for itself. `device`: where buffers lie; lent; nullptr:
/// host memory.
[[nodiscard]] CommunicatorStack make_self_communicator(device::Device* device = nullptr);

}  // namespace shardmark::comm
