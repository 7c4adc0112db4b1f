#include "parallel/predict.hpp"

namespace shardmark::parallel {
namespace {

using device::MemoryCategory;

double share(std::int64_t ranks) {
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

AfterForward after_forward_of(const GroupPlan& group, const Policy& policy) {
  return group.unit == 0 && policy.keep_root ? AfterForward::keep : policy.after_forward;
}

/// Gathers of one unit's group over all passes of a step.
double gather_bytes(const GroupPlan& group, bool visited, const Policy& policy, const Precision& precision,
                    const StepShape& shape) {
  const double whole =
      static_cast<double>(group.layout.numel() * bytes_of(group.trainable ? precision.compute : precision.frozen));
  double once = whole * share(policy.shards);
  if (visited && after_forward_of(group, policy) == AfterForward::free) {
    once *= 2;
  } else if (visited && after_forward_of(group, policy) == AfterForward::keep_part) {
    once += whole * share(policy.parts);
  }
  return once * static_cast<double>(shape.micro_steps);
}

double reduction_bytes(const GroupPlan& group, const Policy& policy, const Precision& precision, const StepShape& shape) {
  const auto reductions = static_cast<double>(shape.no_sync ? 1 : shape.micro_steps);
  const auto numel = static_cast<double>(group.layout.numel());
  const auto width = static_cast<double>(bytes_of(precision.reduce));
  if (!policy.shard_state) {
    return reductions * 2 * numel * width * share(shape.ranks);
  }
  const std::int64_t replicas = shape.ranks / policy.shards;
  const double partial_width = shape.ordered ? 4 : width;
  return reductions * (numel * width * share(policy.shards) +
                       2 * numel / static_cast<double>(policy.shards) * partial_width * share(replicas));
}

}  // namespace

double predicted_payload(const std::vector<GroupPlan>& groups, const std::vector<bool>& visited_by_backward,
                         const Policy& policy, const Precision& precision, const StepShape& shape) {
  double bytes = 0;
  for (const auto& group : groups) {
    if (group.gathered) {
      bytes += gather_bytes(group, visited_by_backward[static_cast<std::size_t>(group.unit)], policy, precision, shape);
    }
    if (group.trainable) {
      bytes += reduction_bytes(group, policy, precision, shape);
    }
    if (group.trainable && policy.shard_state && !group.gathered) {  // the updated parts
      bytes += static_cast<double>(group.layout.numel() * bytes_of(precision.compute)) * share(policy.shards);
    }
  }
  return bytes;
}

device::CategoryBytes predicted_persistent(const std::vector<GroupPlan>& groups, const Policy& policy,
                                           const Precision& precision, const StepShape& shape) {
  device::CategoryBytes bytes{};
  const auto add = [&](MemoryCategory category, std::int64_t more) { bytes[static_cast<std::size_t>(category)] += more; };
  for (const auto& group : groups) {
    const std::int64_t whole = group.layout.numel();
    const std::int64_t part = whole / policy.shards;
    if (!group.trainable) {
      add(MemoryCategory::parameters, (group.gathered ? part : whole) * bytes_of(precision.frozen));
      continue;
    }
    const std::int64_t owned = policy.shard_state ? part : whole;
    if (group.gathered || !policy.shard_state) {
      add(MemoryCategory::parameters, owned * bytes_of(precision.parameters));
    } else {
      const std::int64_t master = precision.has_master() ? owned * bytes_of(precision.parameters) : 0;
      add(MemoryCategory::parameters, whole * bytes_of(precision.compute) + master);
    }
    add(MemoryCategory::gradients, (policy.shard_gradients ? part : whole) * bytes_of(precision.gradient(shape.micro_steps)));
    if (policy.shard_gradients && shape.no_sync && shape.micro_steps > 1) {
      add(MemoryCategory::gradients, whole * 4);
    }
    add(MemoryCategory::optimizer_state, owned * shape.state_bytes);
  }
  return bytes;
}

}  // namespace shardmark::parallel
