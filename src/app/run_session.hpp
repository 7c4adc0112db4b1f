#pragma once
// One training run on all ranks: builds session, communicator, strategy and trainer in that order, and closes the record
// whatever happens.

#include "base/error.hpp"
#include "base/fault.hpp"
#include "config/run_config.hpp"
#include "world/world.hpp"

namespace shardmark::app {

/// Trains one case and writes its record. Collective. Returns the exit code of the run; does not return where ranks no
/// longer agree (the job is then aborted with that code, the record closed first).
[[nodiscard]] base::ExitCode run_session(world::World& world, config::RunConfig config, base::FaultPlan& faults,
                                         double start_s);

}  // namespace shardmark::app
