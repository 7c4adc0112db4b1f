#pragma once
// Which parameters lie in which flat group, and what each group's bytes and messages are: pure arithmetic, no tensors, no
// communication. The engine allocates by it, `predict` counts by it.

#include <cstdint>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/layout.hpp"
#include "parallel/policy.hpp"

namespace shardmark::parallel {

/// How gradients come to rest: the same for all groups of a run.
struct GradientRules {
  std::int64_t micro_steps = 1;
  bool no_sync = false;
  /// A step reduces each gradient once, not every micro-step's.
  [[nodiscard]] bool reduced_once() const { return no_sync || micro_steps == 1; }
  /// Micro-steps are summed before anything is reduced.
  [[nodiscard]] bool accumulates() const { return no_sync && micro_steps > 1; }
};

/// What the plan needs to know of a parameter.
struct ParameterFacts {
  std::int64_t numel = 0;
  std::int64_t unit = 0;
  bool trainable = true;
  bool behind_units = false;  // model::Parameter's
};

/// Parameters that lie in one flat buffer and are gathered or reduced together.
struct GroupPlan {
  std::int64_t unit = -1;  // of which all tensors are; -1: a bucket across units
  bool trainable = true;
  bool gathered = false;  // parameters sharded, whole only while their unit runs
  LayoutGroup layout;     // begin = 0; a multiple of alignment x ranks elements
};

/// Groups in the order in which their gradients are reduced: as backward meets them, frozen ones last.
[[nodiscard]] std::vector<GroupPlan> plan_groups(const std::vector<ParameterFacts>& parameters, const Policy& policy,
                                                 std::int64_t alignment);

/// As plan_groups for a policy without gathered parameters, with the parameters in `order` (indices) instead of backwards.
[[nodiscard]] std::vector<GroupPlan> plan_groups_in_order(const std::vector<ParameterFacts>& parameters,
                                                          const std::vector<std::int64_t>& order, const Policy& policy,
                                                          std::int64_t alignment);

/// Elements of tensors' ends and group ends that belong to no parameter.
[[nodiscard]] std::int64_t padding_of(const GroupPlan& group);

/// A part of a group's tensor that lies in [begin, end) of the group; empty parts are left out.
struct TensorPart {
  std::int64_t index = 0;   // of the parameter
  std::int64_t first = 0;   // element of the parameter where the part starts
  std::int64_t offset = 0;  // where that lies, counted from `begin`
  std::int64_t numel = 0;
};
[[nodiscard]] std::vector<TensorPart> parts_within(const LayoutGroup& group, std::int64_t begin, std::int64_t end);

/// What the optimizer needs to know of [begin, end) of a trainable group, borders being multiples of the alignment. A tensor's
/// padding goes with it. `decayed_by_parameter` may be empty: all are.
[[nodiscard]] optim::RangeLayout range_layout(const LayoutGroup& group, std::int64_t begin, std::int64_t end,
                                              const std::vector<bool>& decayed_by_parameter, std::int64_t small_below);

/// Units that backward visits: all but wholly frozen ones before the first tensor that trains, in the order of use. The root
/// unit (0) encloses the others and is visited if anything trains; its tensors count as used before the others' unless they are
/// `behind_units`.
[[nodiscard]] std::vector<bool> visited_by_backward(const std::vector<ParameterFacts>& parameters);

/// The policy with `kept_units` for a model whose units are used in their order, the root (0) around the others: those that
/// backward comes to again within `reuse_elements` of other units' elements, from the last one on while the budget of live
/// parameters has room for them beside the root and the largest unit. `unit_bytes`: gathered_bytes_by_unit.
[[nodiscard]] Policy keep_for_reuse(Policy policy, const std::vector<ParameterFacts>& parameters,
                                    const std::vector<std::int64_t>& unit_bytes);

}  // namespace shardmark::parallel
