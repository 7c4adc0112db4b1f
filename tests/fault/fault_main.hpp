#pragma once
// The frame of the programs that misbehave on purpose: a world, what to do in it, and the end that all of them share.

#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "world/world.hpp"

namespace shardmark::testing {

/// Starts a world and runs `body`; rank 0 says "complete" if it returns. An error is logged, told to the others unless they
/// told it, and ends the job with its exit code. `prepare` runs before the world starts. Returns what main returns.
inline int run_in_faulty_world(const std::function<world::WorldOptions()>& prepare,
                               const std::function<void(world::World&)>& body) {
  std::optional<world::World> world;
  try {
    world.emplace(prepare());
    body(*world);
    if (world->rank() == 0) {
      std::cout << "complete" << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    const auto code = base::exit_code_of(error);
    base::log_error(error.what());
    if (!world) {
      return static_cast<int>(code);
    }
    if (dynamic_cast<const base::RemoteError*>(&error) == nullptr) {
      world->report_failure(code, error.what());
    }
    world->abort(code);
  }
}

/// Argument `place` as seconds, or the default.
inline double seconds_argument(int argc, char** argv, int place, double fallback) {
  return argc > place ? std::stod(argv[place]) : fallback;
}

}  // namespace shardmark::testing
