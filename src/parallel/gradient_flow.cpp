#include "parallel/gradient_flow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/waiting.hpp"
#include "parallel/bucket_peak.hpp"
#include "parallel/comm_buffer.hpp"

namespace shardmark::parallel {
namespace {

using comm::Purpose;
using device::MemoryCategory;

bool is_fp32(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat;
}

/// By pointers: a view of LibTorch's costs a microsecond, and this runs for every parameter.
optim::Flat flat_of(const torch::Tensor& tensor, std::int64_t offset, std::int64_t count) {
  return {static_cast<std::byte*>(tensor.data_ptr()) + offset * static_cast<std::int64_t>(tensor.element_size()), count,
          dtype_of(tensor)};
}

optim::Flat flat_of(const torch::Tensor& tensor) {
  return flat_of(tensor, 0, tensor.numel());
}

/// Tails behind tensors hold no gradient: they must be zero, for sums and norms run over them.
void zero_padding(const torch::Tensor& flat, const LayoutGroup& layout) {
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const std::int64_t from = layout.tensors[i].offset + layout.tensors[i].numel;
    const std::int64_t to = i + 1 < layout.tensors.size() ? layout.tensors[i + 1].offset : layout.numel();
    if (from < to) {
      flat.narrow(0, from, to - from).zero_();
    }
  }
}

}  // namespace

GradientFlow::GradientFlow(std::deque<FlatGroup>& groups, model::ParameterList& list, Communicators communicators,
                           Options options, std::function<void(std::int64_t unit)> unit_arrived)
    : groups_(groups),
      list_(list),
      communicators_(communicators),
      options_(options),
      unit_arrived_(std::move(unit_arrived)),
      runs_by_itself_(communicators.shard->runs_by_itself()),
      places_(list.parameters().size()) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& tensor : groups_[g].plan.layout.tensors) {
      places_[static_cast<std::size_t>(tensor.index)] = {g, tensor.offset, tensor.numel};
    }
    num_trainable_groups_ += groups_[g].plan.trainable ? 1U : 0U;
  }
  missing_.resize(num_trainable_groups_);
  for (std::size_t i = 0; i < list_.parameters().size(); ++i) {
    const auto& parameter = list_.parameters()[i];
    if (parameter.trainable) {
      hooks_.push_back(std::make_unique<GradientHook>(parameter.value, [this, i] { gradient_ready(i); }));
    }
  }
}

void GradientFlow::begin_micro_step(std::int64_t micro_step) {
  micro_step_ = micro_step;
  arrived_.assign(places_.size(), false);
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    missing_[g] = static_cast<std::int64_t>(groups_[g].plan.layout.tensors.size());
  }
  next_group_ = 0;
  arrival_order_.clear();
}

torch::Tensor& GradientFlow::landing(FlatGroup& group) {
  if (group.accumulator.defined()) {
    return group.accumulator;
  }
  if (options_.rules.reduced_once() && !options_.shards_gradients) {
    return group.gradient;
  }
  if (!group.bucket.defined()) {
    group.bucket = flat_empty(group.numel, options_.reduce, MemoryCategory::buckets, group.where());
    zero_padding(group.bucket, group.plan.layout);
  }
  return group.bucket;
}

void GradientFlow::take(const torch::Tensor& gradient, std::size_t parameter, torch::Tensor& target) {
  const auto& place = places_[parameter];
  const torch::NoGradGuard no_grad;
  const torch::Tensor dense = gradient.is_contiguous() ? gradient : gradient.contiguous();
  const bool finite = options_.math->move(flat_of(target, place.offset, place.numel), flat_of(dense), adds_to_landing());
  if (!finite && first_nonfinite_.parameter < 0) {
    first_nonfinite_ = {static_cast<std::int64_t>(parameter), micro_step_};
  }
}

void GradientFlow::gradient_ready(std::size_t parameter) {
  auto& value = list_.parameters()[parameter].value;
  auto& gradient = value.mutable_grad();
  SM_DCHECK(gradient.defined(), "hook of " + list_.parameters()[parameter].name + " without a gradient");
  if (arrived_[parameter]) {
    const auto& twice = list_.parameters()[parameter];
    throw base::Error(base::ExitCode::failed,
                      fmt::format("the gradient of {} (unit {}) came twice in one backward pass: recomputed units share it; "
                                  "use it in one unit, or set model.activation_checkpointing = false",
                                  twice.name, list_.units()[static_cast<std::size_t>(twice.unit)]));
  }
  const std::size_t index = places_[parameter].group;
  auto& group = groups_[index];
  take(gradient, parameter, landing(group));
  gradient.reset();
  arrived_[parameter] = true;
  arrival_order_.push_back(static_cast<std::int64_t>(parameter));
  const bool complete = --missing_[index] == 0;
  if (options_.overlap && reduces_now()) {
    start_complete_groups();
    communicators_.shard->progress();
  }
  if (complete && group.plan.gathered) {
    unit_arrived_(group.plan.unit);
  }
}

void GradientFlow::start_complete_groups() {
  // In the order of groups on every rank, whatever order gradients arrive in.
  while (next_group_ < num_trainable_groups_ && missing_[next_group_] == 0) {
    start_reduction(next_group_++);
  }
}

void GradientFlow::start_reduction(std::size_t index) {
  auto& group = groups_[index];
  const torch::NoGradGuard no_grad;
  torch::Tensor send = landing(group);
  if (dtype_of(send) != options_.reduce) {
    group.bucket = flat_empty(group.numel, options_.reduce, MemoryCategory::buckets, group.where());
    group.bucket.copy_(send);
    send = group.bucket;
  }
  Flight flight;
  flight.group = index;
  const bool direct = options_.rules.reduced_once() && group.owned_gradient.scalar_type() == send.scalar_type();
  const auto tag = static_cast<std::int64_t>(index);
  auto& shard = *communicators_.shard;
  if (!options_.scatter) {
    flight.received = send;
    if (shard.size() > 1) {
      flight.pending = shard.all_reduce(comm_buffer(send), Purpose::gradient, tag, options_.order);
    }
  } else {
    // Across replicas an ordered sum goes on in fp32: it is rounded at the start and at the end only.
    const bool half_tree = communicators_.replica != nullptr && options_.order == comm::SumOrder::ordered && !is_fp32(send);
    flight.received = half_tree ? flat_empty(group.owned_numel, base::DType::fp32, MemoryCategory::buckets, group.where())
                      : direct  ? group.owned_gradient
                                : group.owned_of(send);
    flight.pending =
        shard.reduce_scatter(comm_buffer(send), comm_buffer(flight.received), Purpose::gradient, tag, options_.order);
  }
  flights_.push_back(std::move(flight));
  if (runs_by_itself_ && communicators_.replica != nullptr) {
    // Computation waits for a part's sum before the sum across replicas starts: for those before the newest it is done or
    // nearly.
    for (std::size_t i = 0; i + 1 < flights_.size(); ++i) {
      if (!flights_[i].across_replicas) {
        wait_for(flights_[i]);
        start_across_replicas(flights_[i]);
      }
    }
  }
  advance(kMostFlights, false);
}

void GradientFlow::wait_for(Flight& flight) {
  comm::wait_for(flight.pending, [&] { return describe(groups_[flight.group], flight.across_replicas); });
}

void GradientFlow::start_across_replicas(Flight& flight) {
  flight.across_replicas = true;
  flight.pending = communicators_.replica->all_reduce(comm_buffer(flight.received), Purpose::gradient,
                                                      static_cast<std::int64_t>(flight.group), options_.order);
}

void GradientFlow::advance(std::size_t leave, bool wait) {
  while (!flights_.empty()) {
    auto& flight = flights_.front();
    // Only buckets cost memory while they travel.
    const bool alone = communicators_.shard->size() == 1 && communicators_.replica == nullptr;  // nobody to wait for
    const bool must = wait || alone || (flights_.size() > leave && groups_[flight.group].bucket.defined());
    if (must) {
      wait_for(flight);
    } else if (runs_by_itself_ || !flight.pending.done()) {
      return;  // how far a device has come is a matter of chance: the same decisions in every run
    }
    if (communicators_.replica != nullptr && !flight.across_replicas) {
      start_across_replicas(flight);
      continue;
    }
    finish_flight(flight);
    flights_.pop_front();
  }
}

std::string GradientFlow::describe(const FlatGroup& group, bool across_replicas) const {
  return fmt::format("{} of the gradients of {}", options_.scatter && !across_replicas ? "reduce_scatter" : "all_reduce",
                     name_of(group.plan, list_));
}

void GradientFlow::finish_flight(Flight& flight) {
  auto& group = groups_[flight.group];
  const torch::NoGradGuard no_grad;
  if (dtype_of(flight.received) != options_.reduce) {
    flight.received = flight.received.to(scalar_type(options_.reduce));
  }
  if (flight.received.data_ptr() != group.owned_gradient.data_ptr()) {
    if (micro_step_ == 0 || options_.rules.no_sync) {
      copy_bits_or_convert(group.owned_gradient, flight.received);
    } else if (is_fp32(flight.received)) {
      options_.math->add(flat_of(group.owned_gradient), flat_of(flight.received));
    } else {
      group.owned_gradient.add_(flight.received);
    }
  }
  group.bucket = torch::Tensor();
}

void GradientFlow::clear(std::size_t parameter) {
  const auto& place = places_[parameter];
  torch::Tensor& target = landing(groups_[place.group]);
  if (!adds_to_landing()) {
    target.narrow(0, place.offset, place.numel).zero_();
  }
}

void GradientFlow::report_unused(const std::vector<std::size_t>& unused) const {
  std::vector<std::string> names;
  for (const auto index : unused) {
    const auto& parameter = list_.parameters()[index];
    names.push_back(fmt::format("{} (unit {})", parameter.name, list_.units()[static_cast<std::size_t>(parameter.unit)]));
  }
  const auto stopped = std::ranges::find_if(missing_, [](std::int64_t gradients) { return gradients > 0; });
  const auto& group = groups_[static_cast<std::size_t>(stopped - missing_.begin())];
  // The names come last: a notice to the other ranks may cut them off.
  throw base::Error(base::ExitCode::failed,
                    fmt::format("rank {}: {} cannot start: no gradient reached {} trainable parameter(s). Freeze them, or set "
                                "technique.unused_parameters = \"allow\": {}",
                                communicators_.rank, communicators_.shard->size() > 1 ? describe(group, false) : "the update",
                                names.size(), base::join(names, ", ")));
}

void GradientFlow::end_micro_step() {
  std::vector<std::size_t> unused;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (list_.parameters()[i].trainable && !arrived_[i]) {
      unused.push_back(i);
    }
  }
  if (!unused.empty() && !options_.allow_unused) {
    report_unused(unused);
  }
  for (const auto index : unused) {
    clear(index);
    --missing_[places_[index].group];
  }
  if (!reduces_now()) {
    return;
  }
  start_complete_groups();
  if (micro_step_ + 1 < options_.rules.micro_steps) {
    advance(0, true);  // each micro-step's sum is added before the next one's is
  }
}

void GradientFlow::finish() {
  advance(0, true);
}

}  // namespace shardmark::parallel
