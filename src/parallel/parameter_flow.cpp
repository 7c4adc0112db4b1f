#include "parallel/parameter_flow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/waiting.hpp"
#include "parallel/comm_buffer.hpp"

namespace shardmark::parallel {
namespace {

using comm::Purpose;
using device::MemoryCategory;

}  // namespace

ParameterFlow::ParameterFlow(std::deque<FlatGroup>& groups, model::ParameterList& list, const Policy& policy,
                             std::vector<std::int64_t> unit_bytes, Communicators communicators, OutOfMemory out_of_memory)
    : groups_(groups),
      list_(list),
      policy_(policy),
      communicators_(communicators),
      out_of_memory_(std::move(out_of_memory)),
      unit_bytes_(std::move(unit_bytes)),
      units_(list.units().size()),
      schedule_(unit_bytes_, {policy.prefetch, policy.prefetch_bytes, gather_budget(unit_bytes_, policy, list.units())}) {
  bool gathers = false;
  for (auto& group : groups_) {
    if (group.plan.gathered) {
      unit_at(group.plan.unit).groups.push_back(&group);
      gathers = true;
    }
  }
  if (gathers) {
    list_.set_observer(this);
  }
}

ParameterFlow::~ParameterFlow() {
  if (list_.observer() == this) {
    list_.set_observer(nullptr);
  }
}

std::string ParameterFlow::name_of(std::int64_t unit) const {
  return list_.units()[static_cast<std::size_t>(unit)];
}

void ParameterFlow::begin_step() {
  for (auto& group : groups_) {
    if (group.transient && !group.plan.gathered) {
      allocate_storage(group.working, MemoryCategory::gathered,
                       [] { return std::string("the working copy of the parameters"); });
      copy_bits_or_convert(group.working, group.resting);
    }
  }
}

void ParameterFlow::end_micro_steps() {
  for (auto& group : groups_) {
    if (group.transient && !group.plan.gathered) {
      free_storage(group.working);
    }
  }
}

void ParameterFlow::begin_pass() {
  for (auto& unit : units_) {
    unit.in_backward = unit.wants_input_gradient = false;
  }
}

void ParameterFlow::enter(std::int64_t unit) {
  to_start_.clear();
  to_drop_.clear();
  schedule_.visit(unit, to_start_, to_drop_);
  for (const auto dropped : to_drop_) {
    finish_gather(dropped);
    drop_memory(unit_at(dropped));
    unit_at(dropped).parts.clear();  // its next gather is from all shards
  }
  for (const auto next : to_start_) {
    start_gather(next);
  }
  finish_gather(unit);
}

void ParameterFlow::start_gather(std::int64_t index) {
  auto& unit = unit_at(index);
  unit.gathering = true;
  const bool from_parts = !unit.parts.empty();
  for (std::size_t i = 0; i < unit.groups.size(); ++i) {
    auto& group = *unit.groups[i];
    const auto what = [&] { return fmt::format("rank {}: all_gather of unit {}", communicators_.rank, name_of(index)); };
    allocate_storage(group.working, MemoryCategory::gathered, what, out_of_memory_());
    torch::Tensor own = from_parts ? unit.parts[i] : group.resting;
    torch::Tensor target = group.working;
    if (own.scalar_type() != target.scalar_type() && group.plan.trainable) {
      own = group.owned_of(target);
      own.copy_(group.resting);
    } else if (own.scalar_type() != target.scalar_type()) {
      target = group.stored = flat_empty(group.numel, dtype_of(own), MemoryCategory::gathered, group.where());
    }
    auto& communicator = from_parts ? *communicators_.part : *communicators_.shard;
    unit.pending.push_back(communicator.all_gather(comm_buffer(own), comm_buffer(target), Purpose::parameter, index));
  }
}

void ParameterFlow::finish_gather(std::int64_t index) {
  auto& unit = unit_at(index);
  if (!unit.gathering) {
    return;
  }
  for (auto& pending : unit.pending) {
    comm::wait_for(pending, [&] { return "all_gather of unit " + name_of(index); });
  }
  unit.pending.clear();
  unit.gathering = false;
  const bool parts_next =
      !unit.in_backward && policy_.after_forward_of(index) == AfterForward::keep_part && at::GradMode::is_enabled();
  unit.parts.clear();
  for (auto* group : unit.groups) {
    if (group->stored.defined()) {
      group->working.copy_(group->stored);
      if (parts_next) {  // a frozen group travels as stored, also the second time
        const std::int64_t part = group->numel / policy_.parts;
        unit.parts.push_back(flat_empty(part, dtype_of(group->stored), MemoryCategory::gathered, group->where()));
        unit.parts.back().copy_(group->stored.narrow(0, communicators_.part->rank() * part, part));
      }
      group->stored = torch::Tensor();
    } else if (parts_next) {
      unit.parts.emplace_back();
    }
  }
}

void ParameterFlow::keep_parts(Unit& unit) {
  for (std::size_t i = 0; i < unit.groups.size(); ++i) {
    if (!unit.parts[i].defined()) {
      const auto& group = *unit.groups[i];
      const std::int64_t part = group.numel / policy_.parts;
      unit.parts[i] = flat_empty(part, dtype_of(group.working), MemoryCategory::gathered, group.where());
      unit.parts[i].copy_(group.working.narrow(0, communicators_.part->rank() * part, part));
    }
  }
}

void ParameterFlow::drop_memory(Unit& unit) {
  for (auto* group : unit.groups) {
    free_storage(group->working);
    group->stored = torch::Tensor();
  }
}

void ParameterFlow::release(std::int64_t unit) {
  if (!schedule_.holds(unit)) {
    return;
  }
  finish_gather(unit);
  drop_memory(unit_at(unit));
  to_start_.clear();
  schedule_.release(unit, to_start_);
  for (const auto next : to_start_) {
    start_gather(next);
  }
}

void ParameterFlow::before_forward(std::int64_t unit, bool input_needs_gradient) {
  unit_at(unit).in_backward = false;
  unit_at(unit).wants_input_gradient = input_needs_gradient;
  if (at::GradMode::is_enabled()) {
    enter(unit);
  } else if (!unit_at(unit).groups.empty()) {
    // No backward follows: the recorded order of a training pass does not hold, so nothing is gathered ahead.
    start_gather(unit);
    finish_gather(unit);
  }
}

void ParameterFlow::after_forward(std::int64_t unit) {
  if (!at::GradMode::is_enabled()) {
    drop_memory(unit_at(unit));
    return;
  }
  const AfterForward choice = policy_.after_forward_of(unit);
  if (choice == AfterForward::keep || !schedule_.holds(unit)) {
    return;  // not held: a unit of empty tensors, or of persistent ones, was never gathered
  }
  if (choice == AfterForward::keep_part) {
    keep_parts(unit_at(unit));
  }
  release(unit);
}

void ParameterFlow::before_backward(std::int64_t index) {
  auto& unit = unit_at(index);
  unit.in_backward = true;
  unit.wants_gradients = std::ranges::any_of(unit.groups, [](const auto* group) { return group->plan.trainable; });
  enter(index);
}

void ParameterFlow::after_input_gradient(std::int64_t unit) {
  // Autograd runs first what was recorded last: the unit's other gradients are in, or (unused tensors) will not come.
  unit_at(unit).wants_input_gradient = unit_at(unit).wants_gradients = false;
  leave_backward(unit);
}

void ParameterFlow::gradients_arrived(std::int64_t unit) {
  unit_at(unit).wants_gradients = false;
  leave_backward(unit);
}

void ParameterFlow::leave_backward(std::int64_t index) {
  // The root's parameters may be used again by what the root still has to do below the units that it encloses.
  const auto& unit = unit_at(index);
  if (index != 0 && unit.in_backward && !unit.wants_gradients && !unit.wants_input_gradient) {
    release(index);
  }
}

void ParameterFlow::end_pass() {
  to_start_.clear();
  schedule_.end_pass(to_start_);
  for (const auto unit : to_start_) {
    finish_gather(unit);
    drop_memory(unit_at(unit));
  }
  for (auto& unit : units_) {
    unit.parts.clear();
    unit.in_backward = false;
  }
}

void ParameterFlow::publish(std::size_t index) {
  auto& group = groups_[index];
  if (group.plan.gathered || group.transient) {
    return;  // gathered, or copied, when it is used
  }
  if (group.owned_numel == group.numel && group.resting.scalar_type() == group.working.scalar_type()) {
    return;  // updated in place
  }
  const torch::Tensor own = group.owned_of(group.working);
  if (group.resting.scalar_type() != own.scalar_type() && !copied_by_update_) {
    own.copy_(group.resting);
  }
  published_.push_back({index, communicators_.shard->all_gather(comm_buffer(own), comm_buffer(group.working),
                                                                Purpose::parameter, static_cast<std::int64_t>(index))});
}

void ParameterFlow::finish_publishing() {
  for (auto& [group, pending] : published_) {
    comm::wait_for(pending, [&, index = group] {
      return "all_gather of the parameters of " + parallel::name_of(groups_[index].plan, list_);
    });
  }
  published_.clear();
}

torch::Tensor ParameterFlow::whole(FlatGroup& group) {
  if (group.owned_numel == group.numel) {
    return group.resting;
  }
  torch::Tensor all = flat_empty(group.numel, dtype_of(group.resting), MemoryCategory::other, group.where());
  communicators_.shard->all_gather(comm_buffer(group.resting), comm_buffer(all), Purpose::control, 0).wait();
  return all;
}

}  // namespace shardmark::parallel
