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
  const optim::Optimizer* optimizer = nullptr;  // whose states count; nullptr: none
  bool overlap = true;
  bool allow_unused = false;  // a missing gradient may hold up every later reduction to the end of the pass
  std::int64_t shard = 0;     // this rank's of policy.shards: states may depend on the tensors in it
  [[nodiscard]] GradientRules rules() const { return {micro_steps, no_sync}; }
};

/// Nominal bytes of gradients and parameters that one rank sends in an optimizer step.
[[nodiscard]] double predicted_payload(const std::vector<GroupPlan>& groups, const std::vector<bool>& visited_by_backward,
                                       const Policy& policy, const Precision& precision, const StepShape& shape);

/// Of these, the gathers of updated parts: a step that is not applied sends none.
[[nodiscard]] double predicted_update_payload(const std::vector<GroupPlan>& groups, const Policy& policy,
                                              const Precision& precision);

/// What stays on one rank between steps, by category.
[[nodiscard]] device::CategoryBytes predicted_persistent(const std::vector<GroupPlan>& groups, const Policy& policy,
                                                         const Precision& precision, const StepShape& shape);

/// Bytes of each unit's gathered parameters while it is whole: the working copy, and beside it the stored one of frozen groups
/// of another type.
[[nodiscard]] std::vector<std::int64_t> gathered_bytes_by_unit(const std::vector<GroupPlan>& groups, std::size_t num_units,
                                                               const Precision& precision);

/// Bytes that gathered units may take at once, 0 = no limit: the policy's, less what keep_part leaves of every unit.
/// Throws base::ConfigError if that cannot hold the largest unit beside those that stay through a pass, naming them.
[[nodiscard]] std::int64_t gather_budget(const std::vector<std::int64_t>& unit_bytes, const Policy& policy,
                                         const std::vector<std::string>& unit_names);

/// The most that comes and goes within the passes of a step, in steady state.
struct TransientBytes {
  std::int64_t gathered_forward = 0;  // gathered units, what stays of them, copies in the type of compute
  std::int64_t gathered_backward = 0;
  std::int64_t buckets = 0;  // gradients on their way; an upper bound, for reductions may end early
};
[[nodiscard]] TransientBytes predicted_transient(const std::vector<GroupPlan>& groups,
                                                 const std::vector<ParameterFacts>& parameters,
                                                 const std::vector<std::string>& unit_names, const Policy& policy,
                                                 const Precision& precision, const StepShape& shape);

}  // namespace shardmark::parallel
