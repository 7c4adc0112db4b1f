// A small program over the double of NCCL whose last rank (no_id: the first) misbehaves in the way that the first argument
// names, for tests of how the others end.
//   nccl_fault FAULT [DEADLINE_S [INIT_DEADLINE_S]]     FAULT: see tests/support/nccl_double.hpp, or share_device; or a silent
// collective that holds the hosts of all ranks in a call which ends with it (held; held_error: one that failed; held_sooner:
// under a deadline that was shortened, to that of initialisation, when the communicator was there already), or never (stuck),
// or after which the hosts take long to end (held_slow_end); or the hosts follow an event behind a collective that never ends
// (behind) or failed (behind_error), or whose query, as a call of CUDA, never returns (stuck_inside).

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/factory.hpp"
#include "device/host_device.hpp"
#include "tests/fault/fault_main.hpp"
#include "tests/support/nccl_double.hpp"
#include "world/world.hpp"

namespace {

using namespace shardmark;

/// Of a device that a collective holds.
class Unreached final : public device::Event {
 public:
  explicit Unreached(bool holds) : holds_(holds) {}
  [[nodiscard]] bool complete() override {
    while (holds_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  bool holds_;
};

void run(const std::string& fault, world::World& world, double init_deadline_s) {
  const int culprit = fault == "no_id" ? 0 : world.size() - 1;  // rank 0 makes the id
  const bool holds = fault.starts_with("held") || fault == "stuck";
  const bool follows = fault.starts_with("behind") || fault == "stuck_inside";
  if (world.rank() == culprit && fault != "share_device") {
    testing::plant_nccl_fault(fault.ends_with("_error") && fault != "async_error" ? testing::NcclFault::async_error
                              : holds || follows                                  ? testing::NcclFault::silent
                                                                                  : testing::nccl_fault_named(fault),
                              3);
  }
  const auto device = device::make_host_device(true);
  comm::FactoryOptions options;
  options.backend = "nccl";
  options.check = false;
  options.device = device.get();
  options.init_deadline_s = init_deadline_s;
  // Two ranks that name one device, as a wrong launch makes them.
  options.device_uuid = fault == "share_device" ? "GPU-1" : "GPU-" + std::to_string(world.rank());
  auto stack = comm::make_communicator(world, options);
  if (fault == "held_sooner") {
    world.set_deadline_s(init_deadline_s);
  }
  std::vector<float> data(100'000, 1.0F);
  for (std::int64_t tag = 0; tag < 5; ++tag) {
    auto pending =
        stack.communicator().all_reduce({data.data(), static_cast<std::int64_t>(data.size())}, comm::Purpose::gradient, tag);
    while (holds && tag == 2 && (fault == "stuck" || testing::nccl_calls().aborted == 0)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (follows && tag == 2) {
      Unreached event(fault == "stuck_inside");
      stack.communicator().follow(event);
    }
    try {
      pending.wait();
    } catch (const base::Error&) {
      if (fault == "held_slow_end") {
        std::this_thread::sleep_for(std::chrono::seconds(13));  // longer than the grace of a host that does not come back
      }
      throw;
    }
  }
  stack.communicator().barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  return testing::run_in_faulty_world(
      [&] { return world::WorldOptions{.init_deadline_s = 30, .deadline_s = testing::seconds_argument(argc, argv, 2, 2)}; },
      [&](world::World& world) { run(fault, world, testing::seconds_argument(argc, argv, 3, 2)); });
}
