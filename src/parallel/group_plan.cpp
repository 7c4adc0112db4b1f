#include "parallel/group_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace shardmark::parallel {
namespace {

const ParameterFacts& facts_at(const std::vector<ParameterFacts>& parameters, std::int64_t index) {
  return parameters[static_cast<std::size_t>(index)];
}

GroupPlan make_group(const std::vector<std::int64_t>& indices, const std::vector<std::int64_t>& sizes, std::int64_t alignment,
                     const Policy& policy) {
  GroupPlan group;
  group.layout = make_layout({indices}, sizes, alignment, policy.ranks).groups.front();
  return group;
}

std::vector<std::int64_t> sizes_of(const std::vector<ParameterFacts>& parameters) {
  std::vector<std::int64_t> sizes;
  for (const auto& parameter : parameters) {
    sizes.push_back(parameter.numel);
  }
  return sizes;
}

/// Gradients of parameters that stay whole: buckets in the given order. Frozen ones: one group.
void add_whole(std::vector<GroupPlan>& groups, const std::vector<std::int64_t>& order, bool trainable, const Policy& policy,
               const std::vector<std::int64_t>& sizes, std::int64_t alignment) {
  if (order.empty()) {
    return;
  }
  // Bucket limits are in fp32 elements: a bucket holds the same tensors whatever the precision.
  const auto elements = [](std::int64_t bytes) { return std::max<std::int64_t>(1, bytes / 4); };
  const std::int64_t limit = elements(policy.bucket_bytes);
  const std::int64_t first = std::min(limit, elements(policy.first_bucket_bytes));
  const auto buckets = trainable ? cut_buckets(order, sizes, first, limit) : std::vector<std::vector<std::int64_t>>{order};
  for (const auto& bucket : buckets) {
    groups.push_back(make_group(bucket, sizes, alignment, policy));
    groups.back().trainable = trainable;
  }
}

void add_gathered(std::vector<GroupPlan>& groups, const std::vector<ParameterFacts>& parameters,
                  const std::vector<std::int64_t>& order, bool trainable, const Policy& policy, std::int64_t alignment) {
  const auto sizes = sizes_of(parameters);
  std::int64_t last_unit = -1;
  for (const auto index : order) {
    last_unit = std::max(last_unit, facts_at(parameters, index).unit);
  }
  for (std::int64_t unit = last_unit; unit >= 0; --unit) {
    std::vector<std::int64_t> members;
    for (const auto index : order) {
      if (facts_at(parameters, index).unit == unit) {
        members.push_back(index);
      }
    }
    if (!members.empty()) {
      std::ranges::sort(members);
      groups.push_back(make_group(members, sizes, alignment, policy));
      groups.back().unit = unit;
      groups.back().trainable = trainable;
      groups.back().gathered = true;
    }
  }
}

}  // namespace

std::vector<GroupPlan> plan_groups_in_order(const std::vector<ParameterFacts>& parameters,
                                            const std::vector<std::int64_t>& order, const Policy& policy,
                                            std::int64_t alignment) {
  const auto sizes = sizes_of(parameters);
  std::vector<GroupPlan> groups;
  for (const bool trainable : {true, false}) {
    std::vector<std::int64_t> whole;
    std::vector<std::int64_t> gathered;
    for (const auto index : order) {
      const auto& facts = facts_at(parameters, index);
      if (facts.trainable == trainable) {
        const bool persistent = !policy.shard_parameters || facts.numel < policy.persistence_threshold;
        (persistent ? whole : gathered).push_back(index);
      }
    }
    add_gathered(groups, parameters, gathered, trainable, policy, alignment);
    add_whole(groups, whole, trainable, policy, sizes, alignment);
  }
  return groups;
}

std::vector<GroupPlan> plan_groups(const std::vector<ParameterFacts>& parameters, const Policy& policy,
                                   std::int64_t alignment) {
  std::vector<std::int64_t> backwards(parameters.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  return plan_groups_in_order(parameters, backwards, policy, alignment);
}

std::int64_t padding_of(const GroupPlan& group) {
  std::int64_t used = 0;
  for (const auto& tensor : group.layout.tensors) {
    used += tensor.numel;
  }
  return group.layout.numel() - used;
}

std::vector<TensorPart> parts_within(const LayoutGroup& group, std::int64_t begin, std::int64_t end) {
  std::vector<TensorPart> parts;
  for (const auto& tensor : group.tensors) {
    const std::int64_t from = std::max(begin, tensor.offset);
    const std::int64_t to = std::min(end, tensor.offset + tensor.numel);
    if (from < to) {
      parts.push_back({tensor.index, from - tensor.offset, from - begin, to - from});
    }
  }
  return parts;
}

optim::RangeLayout range_layout(const LayoutGroup& group, std::int64_t begin, std::int64_t end,
                                const std::vector<bool>& decayed_by_parameter, std::int64_t small_below) {
  optim::RangeLayout range{end - begin, {}};
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const auto& tensor = group.tensors[i];
    const std::int64_t next = i + 1 < group.tensors.size() ? group.tensors[i + 1].offset : group.numel();
    const optim::Segment segment{std::max(tensor.offset, begin) - begin, std::min(next, end) - begin,
                                 decayed_by_parameter.empty() || decayed_by_parameter[static_cast<std::size_t>(tensor.index)],
                                 tensor.numel < small_below};
    if (segment.begin >= segment.end) {
      continue;
    }
    if (!range.segments.empty() && range.segments.back().decayed == segment.decayed &&
        range.segments.back().small == segment.small) {
      range.segments.back().end = segment.end;
    } else {
      range.segments.push_back(segment);
    }
  }
  return range;
}

std::vector<bool> visited_by_backward(const std::vector<ParameterFacts>& parameters) {
  std::int64_t units = 0;
  constexpr std::int64_t kBehind = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_trained = kBehind;
  bool any = false;
  for (const auto& parameter : parameters) {
    units = std::max(units, parameter.unit + 1);
    any = any || parameter.trainable;
    const std::int64_t place = parameter.behind_units ? kBehind : parameter.unit;
    if (parameter.trainable && place < first_trained) {
      first_trained = place;
    }
  }
  std::vector<bool> visited(static_cast<std::size_t>(units), false);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    visited[static_cast<std::size_t>(unit)] = any && (unit == 0 || unit >= first_trained);
  }
  return visited;
}

Policy keep_for_reuse(Policy policy, const std::vector<ParameterFacts>& parameters,
                      const std::vector<std::int64_t>& unit_bytes) {
  if (policy.reuse_elements == 0 || unit_bytes.empty()) {
    return policy;
  }
  std::vector<std::int64_t> elements(unit_bytes.size(), 0);
  for (const auto& parameter : parameters) {
    elements[static_cast<std::size_t>(parameter.unit)] += parameter.numel;
  }
  const auto visited = visited_by_backward(parameters);
  policy.kept_units.assign(unit_bytes.size(), false);
  policy.kept_units[0] = visited[0];  // left last and met first
  const std::int64_t beside = *std::ranges::max_element(unit_bytes);
  std::int64_t held = unit_bytes[0];
  std::int64_t between = 0;  // used in forward and again in backward before the unit's turn
  for (std::size_t unit = unit_bytes.size() - 1; unit > 0 && visited[unit] && between < policy.reuse_elements; --unit) {
    held += unit_bytes[unit];
    if (policy.live_bytes > 0 && held + beside > policy.live_bytes) {
      break;
    }
    policy.kept_units[unit] = true;
    between += 2 * elements[unit];
  }
  return policy;
}

}  // namespace shardmark::parallel
