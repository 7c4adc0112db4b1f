#include "parallel/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "parallel/bucket_peak.hpp"
#include "parallel/gather_schedule.hpp"

namespace shardmark::parallel {
namespace {

using device::MemoryCategory;

double share(std::int64_t ranks) {
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

/// Gathers of one unit's group over all passes of a step.
double gather_bytes(const GroupPlan& group, bool visited, const Policy& policy, const Precision& precision,
                    const StepShape& shape) {
  const double whole =
      static_cast<double>(group.layout.numel() * bytes_of(group.trainable ? precision.compute : precision.frozen));
  double once = whole * share(policy.shards);
  if (visited && policy.after_forward_of(group.unit) == AfterForward::free) {
    once *= 2;
  } else if (visited && policy.after_forward_of(group.unit) == AfterForward::keep_part) {
    once += whole * share(policy.parts);
  }
  return once * static_cast<double>(shape.micro_steps);
}

double reduction_bytes(const GroupPlan& group, const Policy& policy, const Precision& precision, const StepShape& shape) {
  const auto reductions = static_cast<double>(shape.rules().reduced_once() ? 1 : shape.micro_steps);
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
  }
  return bytes + predicted_update_payload(groups, policy, precision);
}

double predicted_update_payload(const std::vector<GroupPlan>& groups, const Policy& policy, const Precision& precision) {
  double bytes = 0;
  for (const auto& group : groups) {
    if (group.trainable && policy.shard_state && !group.gathered) {
      bytes += static_cast<double>(group.layout.numel() * bytes_of(precision.compute)) * share(policy.shards);
    }
  }
  return bytes;
}

device::CategoryBytes predicted_persistent(const std::vector<GroupPlan>& groups, const Policy& policy,
                                           const Precision& precision, const StepShape& shape) {
  device::CategoryBytes bytes{};
  const auto add = [&](MemoryCategory category, std::int64_t more) { bytes[static_cast<std::size_t>(category)] += more; };
  std::vector<optim::RangeLayout> updated;
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
    if (policy.shard_gradients && shape.rules().accumulates()) {
      add(MemoryCategory::gradients, whole * 4);
    }
    if (shape.optimizer != nullptr) {
      const std::int64_t begin = policy.shard_state ? shape.shard * part : 0;
      updated.push_back(range_layout(group.layout, begin, begin + owned, {}, shape.optimizer->small_below()));
    }
  }
  if (shape.optimizer != nullptr) {
    const auto of_optimizer =
        shape.optimizer->persistent_bytes(updated, precision.parameters, precision.gradient(shape.micro_steps));
    std::ranges::transform(bytes, of_optimizer, bytes.begin(), std::plus<>{});
  }
  return bytes;
}

std::vector<std::int64_t> gathered_bytes_by_unit(const std::vector<GroupPlan>& groups, std::size_t num_units,
                                                 const Precision& precision) {
  std::vector<std::int64_t> bytes(num_units, 0);
  for (const auto& group : groups) {
    if (group.gathered) {
      const bool stored_too = !group.trainable && precision.frozen != precision.compute;
      bytes[static_cast<std::size_t>(group.unit)] +=
          group.layout.numel() * (bytes_of(precision.compute) + (stored_too ? bytes_of(precision.frozen) : 0));
    }
  }
  return bytes;
}

std::int64_t gather_budget(const std::vector<std::int64_t>& unit_bytes, const Policy& policy,
                           const std::vector<std::string>& unit_names) {
  if (policy.live_bytes == 0) {
    return 0;
  }
  std::int64_t parts = 0;
  std::int64_t held = 0;
  std::int64_t largest = 0;
  std::string beside;
  std::vector<std::string> stay;
  for (std::size_t unit = 0; unit < unit_bytes.size(); ++unit) {
    const std::int64_t bytes = unit_bytes[unit];
    const std::string name = fmt::format("{} ({} bytes)", unit_names[unit], bytes);
    if (policy.after_forward == AfterForward::keep_part) {
      parts += bytes / policy.parts;
    }
    if (bytes > 0 && (unit == 0 || policy.after_forward_of(static_cast<std::int64_t>(unit)) == AfterForward::keep)) {
      held += bytes;
      stay.push_back(name);
    } else if (bytes > largest) {
      largest = bytes;
      beside = name;
    }
  }
  if (parts > 0) {
    stay.push_back(fmt::format("1/{} of every unit ({} bytes)", policy.parts, parts));
  }
  const std::int64_t needed = held + parts + largest;
  if (needed > policy.live_bytes) {
    constexpr double kThousandthMiB = 1024.0 * 1024.0 / 1000.0;
    throw base::ConfigError(fmt::format(
        "technique.live_parameters_mb allows {} bytes of gathered parameters, but {}{}{}: at least {:.3f} MiB are needed",
        policy.live_bytes, stay.empty() ? "" : "through a pass stay " + base::join(stay, ", "),
        stay.empty() || beside.empty() ? "" : ", and beside them comes ",
        beside.empty() ? ""
        : stay.empty() ? "the largest unit is " + beside
                       : beside,
        std::ceil(static_cast<double>(needed) / kThousandthMiB) / 1000.0));
  }
  return policy.live_bytes - parts;
}

namespace {

/// A frozen part is kept as it is stored, for that is how it travels.
std::vector<std::int64_t> part_bytes_by_unit(const std::vector<GroupPlan>& groups, std::size_t num_units, const Policy& policy,
                                             const Precision& precision) {
  std::vector<std::int64_t> bytes(num_units, 0);
  if (policy.after_forward != AfterForward::keep_part) {
    return bytes;
  }
  for (const auto& group : groups) {
    if (group.gathered) {
      bytes[static_cast<std::size_t>(group.unit)] +=
          group.layout.numel() / policy.parts * bytes_of(group.trainable ? precision.compute : precision.frozen);
    }
  }
  return bytes;
}

/// Drives the schedule through a pass in declared order and watches what is held.
class PassSimulation {
 public:
  /// `part_bytes`: what a unit leaves behind after forward where parts of it are kept.
  PassSimulation(std::vector<std::int64_t> unit_bytes, std::vector<std::int64_t> part_bytes, std::vector<bool> visited,
                 const Policy& policy, std::int64_t budget)
      : bytes_(std::move(unit_bytes)),
        part_bytes_(std::move(part_bytes)),
        visited_(std::move(visited)),
        policy_(policy),
        schedule_(bytes_, {policy.prefetch, policy.prefetch_bytes, budget}) {
    visited_.resize(bytes_.size(), false);
  }

  void run(std::int64_t& forward, std::int64_t& backward) {
    const auto units = static_cast<std::int64_t>(bytes_.size());
    parts_.assign(bytes_.size(), 0);
    visit(0, forward);
    for (std::int64_t unit = 1; unit < units; ++unit) {
      visit(unit, forward);
      leave_forward(unit, forward);
    }
    leave_forward(0, forward);
    if (visited_[0]) {
      visit(0, backward);
    }
    for (std::int64_t unit = units - 1; unit > 0; --unit) {
      if (visited_[static_cast<std::size_t>(unit)]) {
        visit(unit, backward);
        release(unit, backward);
      }
    }
    none_.clear();
    schedule_.end_pass(none_);
  }

 private:
  void watch(std::int64_t& most) const {
    most = std::max(most, std::accumulate(parts_.begin(), parts_.end(), schedule_.held_bytes()));
  }
  void visit(std::int64_t unit, std::int64_t& most) {
    none_.clear();
    dropped_.clear();
    schedule_.visit(unit, none_, dropped_);
    watch(most);
    parts_[static_cast<std::size_t>(unit)] = 0;  // whole again
  }
  void release(std::int64_t unit, std::int64_t& most) {
    none_.clear();
    schedule_.release(unit, none_);
    watch(most);
  }
  void leave_forward(std::int64_t unit, std::int64_t& most) {
    if (policy_.after_forward_of(unit) == AfterForward::keep) {
      return;
    }
    if (policy_.after_forward_of(unit) == AfterForward::keep_part) {
      const auto at = static_cast<std::size_t>(unit);
      parts_[at] = part_bytes_[at];
      watch(most);  // the part is cut off before the whole is freed
    }
    release(unit, most);
  }

  std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> part_bytes_;
  std::vector<bool> visited_;
  Policy policy_;
  GatherSchedule schedule_;
  std::vector<std::int64_t> parts_;  // kept now, by unit
  std::vector<std::int64_t> none_;
  std::vector<std::int64_t> dropped_;
};

}  // namespace

TransientBytes predicted_transient(const std::vector<GroupPlan>& groups, const std::vector<ParameterFacts>& parameters,
                                   const std::vector<std::string>& unit_names, const Policy& policy, const Precision& precision,
                                   const StepShape& shape) {
  TransientBytes bytes;
  auto unit_bytes = gathered_bytes_by_unit(groups, unit_names.size(), precision);
  const std::int64_t budget = gather_budget(unit_bytes, policy, unit_names);
  PassSimulation pass(std::move(unit_bytes), part_bytes_by_unit(groups, unit_names.size(), policy, precision),
                      visited_by_backward(parameters), policy, budget);
  pass.run(bytes.gathered_forward, bytes.gathered_backward);  // records the order
  bytes = {};
  pass.run(bytes.gathered_forward, bytes.gathered_backward);
  for (const auto& group : groups) {
    const bool own_type = (group.trainable ? precision.parameters : precision.frozen) == precision.compute;
    if (!group.gathered && !own_type && !(group.trainable && policy.shard_state)) {
      bytes.gathered_forward += group.layout.numel() * bytes_of(precision.compute);
      bytes.gathered_backward += group.layout.numel() * bytes_of(precision.compute);
    }
  }
  bytes.buckets = most_bucket_bytes(groups, parameters, policy, precision, shape);
  return bytes;
}

}  // namespace shardmark::parallel
