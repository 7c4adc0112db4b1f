// A small program whose last rank misbehaves in the way that the first argument names, for tests of how the others end.
//   comm_fault SCENARIO [DEADLINE_S [INIT_DEADLINE_S]]
// Exit codes: skip, stop, ahead, die: 7 (mpirun may turn die into 137); throw, throw-in-flight: 1; mismatch: 9; late, none: 0.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/factory.hpp"
#include "tests/fault/fault_main.hpp"
#include "world/world.hpp"

namespace {

using shardmark::comm::Buffer;
using shardmark::comm::Communicator;
using shardmark::comm::Purpose;

void sum_once(Communicator& communicator, std::vector<float>& data, std::int64_t tag) {
  communicator.all_reduce(Buffer{data.data(), static_cast<std::int64_t>(data.size())}, Purpose::gradient, tag).wait();
}

/// The last rank fails while a large collective is in flight, and unwinding frees its buffer under it.
void fail_in_flight(Communicator& communicator) {
  std::vector<float> large(16'000'000, 1.0F);
  auto pending = communicator.all_reduce(Buffer{large.data(), static_cast<std::int64_t>(large.size())}, Purpose::gradient, 2);
  for (int turn = 0; turn < 1000; ++turn) {
    communicator.progress();
  }
  if (communicator.rank() == communicator.size() - 1) {
    throw std::runtime_error("the planted failure");
  }
  pending.wait();
}

/// What the last rank does between the second and the third collective.
void misbehave(const std::string& scenario, shardmark::world::World& world) {
  if (scenario == "skip") {
    std::this_thread::sleep_for(std::chrono::seconds(60));  // busy elsewhere: takes part in nothing
  } else if (scenario == "stop") {
    kill(getpid(), SIGSTOP);
  } else if (scenario == "die") {
    kill(getpid(), SIGKILL);
  } else if (scenario == "throw") {
    throw std::runtime_error("the planted failure");
  } else if (scenario == "ahead") {
    world.barrier();  // waits in another exchange than the others
  } else if (scenario == "late") {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  } else if (scenario != "none" && scenario != "mismatch" && scenario != "throw-in-flight") {
    throw shardmark::base::ConfigError("scenario \"" + scenario +
                                       "\" is not one of none, skip, stop, die, throw, throw-in-flight, ahead, late, mismatch");
  }
}

void run(const std::string& scenario, shardmark::world::World& world) {
  auto stack = shardmark::comm::make_communicator(world, {});
  std::vector<float> data(100'000, 1.0F);
  const bool last = world.rank() == world.size() - 1;
  for (std::int64_t tag = 0; tag < 5; ++tag) {
    if (tag == 2 && scenario == "throw-in-flight") {
      fail_in_flight(stack.communicator());
    }
    if (tag == 2 && last) {
      misbehave(scenario, world);
    }
    sum_once(stack.communicator(), data, tag == 2 && last && scenario == "mismatch" ? 99 : tag);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using shardmark::testing::seconds_argument;
  const std::string scenario = argc > 1 ? argv[1] : "none";
  return shardmark::testing::run_in_faulty_world(
      [&] {
        return shardmark::world::WorldOptions{.init_deadline_s = seconds_argument(argc, argv, 3, 30),
                                              .deadline_s = seconds_argument(argc, argv, 2, 2)};
      },
      [&](shardmark::world::World& world) { run(scenario, world); });
}
