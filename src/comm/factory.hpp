#pragma once
// The one place that chooses an implementation of Communicator.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/fault.hpp"
#include "comm/communicator.hpp"
#include "comm/counting_communicator.hpp"

namespace shardmark::world {
class World;
}

namespace shardmark::comm {

class CheckingCommunicator;

struct FactoryOptions {
  std::string backend = "auto";       // auto, mpi
  bool check = true;                  // ranks agree on every collective before it starts
  base::FaultPlan* faults = nullptr;  // lent for the communicator's life; nullptr: none
};

/// Counting over checking (where there is one) over the implementation.
class CommunicatorStack {
 public:
  CommunicatorStack(std::unique_ptr<CountingCommunicator> top, CheckingCommunicator* checking, std::string backend)
      : top_(std::move(top)), checking_(checking), backend_(std::move(backend)) {}

  [[nodiscard]] Communicator& communicator() { return *top_; }
  /// Of this communicator and of all that are split from it.
  [[nodiscard]] CollectiveCounts& counts() { return top_->counts(); }
  /// What carries the messages: "mpi", or "self" with one rank.
  [[nodiscard]] const std::string& backend() const { return backend_; }
  [[nodiscard]] bool checked() const { return checking_ != nullptr; }
  /// The training step that planted faults count by.
  void set_step(std::int64_t step);

 private:
  std::unique_ptr<CountingCommunicator> top_;
  CheckingCommunicator* checking_;
  std::string backend_;
};

/// Collective over the world; `world` must outlive the stack. One rank needs no messages: it gets a SelfCommunicator.
/// Throws EnvironmentError (exit 5) if this build or machine lacks the backend.
[[nodiscard]] CommunicatorStack make_communicator(world::World& world, const FactoryOptions& options);

/// One rank alone, whatever the world: every rank that calls it works for itself.
[[nodiscard]] CommunicatorStack make_self_communicator();

}  // namespace shardmark::comm
