#pragma once
// Bytes that a plan holds and moves: the formulas of design section 3, group by group. Pure arithmetic.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/memory_ledger.hpp"
#include "parallel/group_plan.hpp"
#include "parallel/precision.hpp"

namespace shardmark::parallel {

struct StepShape {
  std::int64_t micro_steps = 1;
  bool no_sync = false;
  bool ordered = false;
  std::int64_t ranks = 1;
  std::int64_t state_bytes = 0;  // of all optimizer states of an element
};

/// Nominal bytes of gradients and parameters that one rank sends in an optimizer step.
[[nodiscard]] double predicted_payload(const std::vector<GroupPlan>& groups, const std::vector<bool>& visited_by_backward,
                                       const Policy& policy, const Precision& precision, const StepShape& shape);

/// What stays on one rank between steps, by category.
[[nodiscard]] device::CategoryBytes predicted_persistent(const std::vector<GroupPlan>& groups, const Policy& policy,
                                                         const Precision& precision, const StepShape& shape);

}  // namespace shardmark::parallel
