#pragma once
// Which planted faults `shardmark comm` takes. Knows nothing of how they are planted.

#include <cstddef>

#include "base/fault.hpp"

namespace shardmark::app::bench {

/// What SHARDMARK_FAULT plants. Throws ConfigError for a fault that nothing in `comm` plants.
[[nodiscard]] base::FaultPlan faults_of_comm();

/// Throws ConfigError for a fault that would pass for survived because its rank or row is not there.
void require_place_of_fault(const base::FaultPlan& faults, int ranks, std::size_t rows);

}  // namespace shardmark::app::bench
