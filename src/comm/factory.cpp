#include "comm/factory.hpp"

#include "base/error.hpp"
#include "comm/checking_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/self_communicator.hpp"
#include "world/world.hpp"

namespace shardmark::comm {

void CommunicatorStack::set_step(std::int64_t step) {
  if (checking_ != nullptr) {
    checking_->set_step(step);
  }
}

CommunicatorStack make_communicator(world::World& world, const FactoryOptions& options) {
  if (options.backend != "auto" && options.backend != "mpi") {
    throw base::EnvironmentError("comm.backend = \"" + options.backend +
                                 "\": this build communicates over MPI in host memory; use \"auto\" or \"mpi\"");
  }
  const bool plants = options.faults != nullptr && !options.faults->text().empty();
  const bool alone = world.size() == 1;
  std::unique_ptr<Communicator> made;
  if (alone) {
    made = std::make_unique<SelfCommunicator>("world");
  } else {
    made = std::make_unique<MpiCommunicator>(CommHandle::duplicate(world), "world", MpiOptions{});
  }
  CheckingCommunicator* checking = nullptr;
  if ((options.check && !alone) || plants) {
    auto decorated = std::make_unique<CheckingCommunicator>(std::move(made), CommHandle::duplicate(world),
                                                            CheckingOptions{options.check, options.faults});
    checking = decorated.get();
    made = std::move(decorated);
  }
  return {std::make_unique<CountingCommunicator>(std::move(made)), checking, alone ? "self" : "mpi"};
}

CommunicatorStack make_self_communicator() {
  return {std::make_unique<CountingCommunicator>(std::make_unique<SelfCommunicator>("self")), nullptr, "self"};
}

}  // namespace shardmark::comm
