#include "parallel/flat_strategy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "device/torch_device.hpp"
#include "parallel/comm_buffer.hpp"
#include "parallel/handshake.hpp"
#include "parallel/plan_technique.hpp"

namespace shardmark::parallel {

using comm::Purpose;
using device::MemoryCategory;

namespace {

class StatisticsSum final : public model::SumOverRanks {
 public:
  StatisticsSum(comm::Communicator& communicator, comm::SumOrder order) : communicator_(communicator), order_(order) {}
  void add(const torch::Tensor& values) override {
    communicator_.all_reduce(comm_buffer(values), Purpose::buffer, ++sums_, order_).wait();
  }

 private:
  comm::Communicator& communicator_;
  comm::SumOrder order_;
  std::int64_t sums_ = 0;
};

}  // namespace

FlatStrategy::FlatStrategy(StrategyOptions options, const Policy& policy, comm::Communicator& communicator)
    : options_(std::move(options)),
      policy_(policy),
      communicator_(communicator),
      math_(optim::make_flat_math(options_.device)),
      optimizer_(optim::make_optimizer(options_.optimizer)) {
  SM_CHECK(options_.micro_steps >= 1, "at least one micro-step");
  SM_CHECK(communicator_.size() % policy_.shards == 0, "the ranks that share one copy do not divide all ranks");
  split_groups();
}

FlatStrategy::~FlatStrategy() {
  if (list_ != nullptr && sums_) {
    list_->set_sums(nullptr);
  }
  // After a failure collectives may be under way: their communicators go first, and then the buffers that they were lent.
  statistics_.reset();
  part_.reset();
  replica_.reset();
  scatter_.reset();
  gather_.reset();
}

void FlatStrategy::split_groups() {
  if (!policy_.shard_state || communicator_.size() == 1) {
    return;
  }
  const auto shards = static_cast<int>(policy_.shards);
  const int group = communicator_.rank() / shards;
  gather_ = communicator_.split(group, "gather");
  scatter_ = communicator_.split(group, "scatter");
  if (communicator_.size() > shards) {
    replica_ = communicator_.split(communicator_.rank() % shards, "replica");
  }
  if (policy_.after_forward == AfterForward::keep_part) {
    part_ = communicator_.split(communicator_.rank() / static_cast<int>(policy_.parts), "part");
  }
}

void FlatStrategy::prepare(model::ParameterList& list, const InitialValue& initial) {
  list_ = &list;
  compare_parameters(list, communicator_);
  facts_ = facts_of(list);
  bind_buffers();
  std::vector<std::int64_t> backwards(facts_.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  build(backwards);
  allocate_gradients();
  fill_initial_values(initial);
  bind_optimizer();
  rebuilt_ = !policy_.rebuild_buckets || num_trainable_groups_ == 0;
}

void FlatStrategy::build(const std::vector<std::int64_t>& order) {
  gradients_.reset();
  parameters_.reset();
  const std::int64_t shard = communicator_.rank() % policy_.shards;
  const GradientRules rules{options_.micro_steps, options_.no_sync};
  num_trainable_groups_ = 0;
  for (auto& plan : plan_groups_in_order(facts_, order, policy_, options_.precision.alignment())) {
    num_trainable_groups_ += plan.trainable ? 1U : 0U;
    // Bound, and its storage freed where it comes and goes, before the next group takes memory.
    bind_values(groups_.emplace_back(std::move(plan), policy_, options_.precision, shard, where()));
  }
  auto unit_bytes = gathered_bytes_by_unit(plans(), list_->units().size(), options_.precision);
  policy_ = keep_for_reuse(std::move(policy_), facts_, unit_bytes);
  parameters_.emplace(groups_, *list_, policy_, std::move(unit_bytes),
                      ParameterFlow::Communicators{&gather_communicator(), part_.get(), communicator_.rank()},
                      [this] { return gather_is_to_fail(); });
  gradients_.emplace(groups_, *list_,
                     GradientFlow::Communicators{&scatter_communicator(), replica_.get(), communicator_.rank()},
                     GradientFlow::Options{rules, options_.order, options_.precision.reduce, options_.overlap,
                                           options_.allow_unused, policy_.shard_state, policy_.shard_gradients, math_.get()},
                     [this](std::int64_t unit) { parameters_->gradients_arrived(unit); });
}

void FlatStrategy::allocate_gradients() {
  for (auto& group : groups_) {
    group.allocate_gradients(policy_, options_.precision, {options_.micro_steps, options_.no_sync});
  }
}

void FlatStrategy::bind_values(FlatGroup& group) {
  for (const auto& tensor : group.plan.layout.tensors) {
    auto& parameter = list_->parameters()[static_cast<std::size_t>(tensor.index)];
    // A version counter of its own: autograd may not mistake a gather in backward for a change of the value it saved.
    parameter.value = group.working.narrow(0, tensor.offset, tensor.numel).view(parameter.shape).variable_data();
    parameter.value.set_requires_grad(parameter.trainable);
  }
  if (group.transient) {
    free_storage(group.working);
  }
}

optim::RangeLayout FlatStrategy::range_of(const FlatGroup& group) const {
  std::vector<bool> decayed;
  for (const auto& parameter : list_->parameters()) {
    decayed.push_back(!options_.decay_matrices_only || parameter.is_matrix());
  }
  return range_layout(group.plan.layout, group.owned_begin, group.owned_begin + group.owned_numel, decayed,
                      optimizer_->small_below());
}

void FlatStrategy::bind_optimizer() {
  std::vector<optim::Range> ranges;
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    ranges.push_back({groups_[g].resting, groups_[g].owned_gradient, range_of(groups_[g]).segments});
  }
  optimizer_->bind(std::move(ranges), {});
  std::vector<torch::Tensor> working(num_trainable_groups_);
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    const auto& group = groups_[g];
    if (!group.transient && group.resting.scalar_type() != group.working.scalar_type()) {
      working[g] = group.owned_of(group.working);
    }
  }
  parameters_->set_copied_by_update(optimizer_->set_working(std::move(working)));
}

void FlatStrategy::fill_initial_values(const InitialValue& initial) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    auto& group = groups_[g];
    for (const auto& part : parts_within(group.plan.layout, group.owned_begin, group.owned_begin + group.owned_numel)) {
      fill_part(group, part, initial);
    }
    if (group.plan.trainable) {
      parameters_->publish(g);
    }
  }
  parameters_->finish_publishing();
}

void FlatStrategy::fill_part(FlatGroup& group, const TensorPart& part, const InitialValue& initial) {
  const auto& parameter = list_->parameters()[static_cast<std::size_t>(part.index)];
  const bool in_place = group.resting.scalar_type() == at::kFloat && group.where().is_cpu();
  torch::Tensor target = group.resting.narrow(0, part.offset, part.numel);
  torch::Tensor values = in_place ? target : flat_empty(part.numel, base::DType::fp32, MemoryCategory::other, at::kCPU);
  const std::span<float> out(values.data_ptr<float>(), static_cast<std::size_t>(part.numel));
  if (!initial || !initial(parameter, part.first, out)) {
    model::fill_initial(out, parameter.init, options_.seed, parameter.name, part.first);
  }
  if (!in_place) {
    target.copy_(values);
  }
}

bool FlatStrategy::gather_is_to_fail() {
  return options_.faults != nullptr &&
         options_.faults->due(base::FaultPhase::forward, step_, base::FaultKind::enospc).has_value();
}

void FlatStrategy::begin_step() {
  ++step_;
  broadcast_buffers();
  gradients_->forget_nonfinite();
  parameters_->begin_step();
}

void FlatStrategy::bind_buffers() {
  const torch::NoGradGuard no_grad;
  std::int64_t moving = 0;
  for (auto& buffer : list_->buffers()) {
    SM_CHECK(buffer.value.is_contiguous(), "model buffer " + buffer.name + " is not contiguous");
    SM_CHECK(!buffer.changes_by_rank || buffer.value.scalar_type() == at::kFloat, "only fp32 buffers travel: " + buffer.name);
    buffer.value = buffer.value.to(where());
    moving += buffer.changes_by_rank ? buffer.value.numel() : 0;
  }
  if (communicator_.size() == 1) {
    return;
  }
  if (moving > 0) {
    moving_buffers_ = flat_empty(moving, base::DType::fp32, MemoryCategory::other, where());
  }
  if (list_->declares_sums()) {
    statistics_ = communicator_.split(0, "statistics");
    sums_ = std::make_unique<StatisticsSum>(*statistics_, options_.order);
    list_->set_sums(sums_.get());
  }
}

void FlatStrategy::broadcast_buffers() {
  if (!moving_buffers_.defined()) {
    return;
  }
  const torch::NoGradGuard no_grad;
  const auto for_each = [&](const auto& use) {
    std::int64_t offset = 0;
    for (auto& buffer : list_->buffers()) {
      if (buffer.changes_by_rank) {
        use(moving_buffers_.narrow(0, offset, buffer.value.numel()), buffer.value.view(-1));
        offset += buffer.value.numel();
      }
    }
  };
  if (communicator_.rank() == 0) {
    for_each([](const torch::Tensor& part, const torch::Tensor& value) { part.copy_(value); });
  }
  communicator_.broadcast(comm_buffer(moving_buffers_), 0, Purpose::buffer, ++broadcasts_).wait();
  if (communicator_.rank() != 0) {
    for_each([](const torch::Tensor& part, const torch::Tensor& value) { value.copy_(part); });
  }
}

void FlatStrategy::begin_micro_step(std::int64_t index) {
  parameters_->begin_pass();
  gradients_->begin_micro_step(index);
}

void FlatStrategy::end_micro_step() {
  gradients_->end_micro_step();
  parameters_->end_pass();
}

GradientSummary FlatStrategy::finish_gradients() {
  optim::StepScalars scalars;
  finish_gradients(&scalars, 0);
  GradientSummary summary;
  summary.norm = scalars.norm;
  summary.finite = scalars.finite != 0;
  if (!summary.finite) {
    summary.nonfinite = describe_nonfinite();
  }
  return summary;
}

std::string FlatStrategy::describe_nonfinite() {
  // Each rank saw its own gradients before they were summed: the first rank that met one that was not finite is named.
  std::int64_t mine = gradients_->first_nonfinite().parameter;
  std::vector<std::int64_t> all(static_cast<std::size_t>(communicator_.size()));
  communicator_
      .all_gather(comm::host_buffer(&mine, 1, base::DType::int64),
                  comm::host_buffer(all.data(), communicator_.size(), base::DType::int64), Purpose::control, 0)
      .wait();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] >= 0) {
      const auto& parameter = list_->parameters()[static_cast<std::size_t>(all[rank])];
      return fmt::format("the gradient of {} (unit {}) that backward computed on rank {}", parameter.name,
                         list_->units()[static_cast<std::size_t>(parameter.unit)], rank);
    }
  }
  return "the sum of the gradients over ranks, all of them finite";
}

void FlatStrategy::update(double lr, float coefficient) {
  optimizer_->begin_step();
  run_update(lr, coefficient, true);
}

void FlatStrategy::run_update(double lr, float coefficient, bool applies) {
  const torch::NoGradGuard no_grad;
  const std::size_t lag = optimizer_->lag();
  for (std::size_t g = 0; g < num_trainable_groups_ + lag; ++g) {
    if (g < num_trainable_groups_ && applies) {
      optimizer_->update(g, lr, coefficient);
    }
    if (g >= lag) {
      if (applies) {
        optimizer_->finish(g - lag);
      }
      parameters_->publish(g - lag);
    }
    if (gather_) {
      gather_->progress();
    }
  }
  parameters_->finish_publishing();
}

template <typename Use>
void FlatStrategy::for_each_owned_gradient(const Use& use) const {
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    const auto& gradient = groups_[g].owned_gradient;
    use(optim::Flat{gradient.data_ptr(), gradient.numel(), dtype_of(gradient)});
  }
}

void FlatStrategy::finish_gradients(optim::StepScalars* scalars, double clip_norm) {
  parameters_->end_micro_steps();
  gradients_->finish();
  const auto control = [&](void* data, std::int64_t count, base::DType type) { return comm::Buffer{data, count, type}; };
  if (options_.order == comm::SumOrder::fast) {
    for_each_owned_gradient([&](optim::Flat part) { math_->add_squares(part, scalars); });
    if (scatter_) {
      scatter_->all_reduce(control(&scalars->squares, 1, base::DType::fp64), Purpose::control, 0).wait();
    }
    math_->finish_norm(scalars, optim::NormKind::fast, nullptr, 0, clip_norm);
    return;
  }
  for_each_owned_gradient([&](optim::Flat part) { math_->take_largest(part, scalars); });
  if (scatter_) {
    scatter_
        ->all_reduce(control(&scalars->largest, 1, base::DType::fp32), Purpose::control, 0, comm::SumOrder::ordered,
                     comm::Reduction::max)
        .wait();
  }
  for_each_owned_gradient([&](optim::Flat part) { math_->add_exact_squares(part, scalars); });
  const std::uint64_t* gathered = scalars->exact_squares;
  int parts = 1;
  if (scatter_) {
    parts = scatter_->size();
    if (!norm_parts_.defined()) {
      norm_parts_ = at::zeros({2 * parts}, at::TensorOptions(where()).dtype(at::kLong));
    }
    scatter_->all_gather(control(scalars->exact_squares, 2, base::DType::int64), comm_buffer(norm_parts_), Purpose::control, 0)
        .wait();
    gathered = static_cast<const std::uint64_t*>(norm_parts_.const_data_ptr());
  }
  math_->finish_norm(scalars, optim::NormKind::exact, gathered, parts, clip_norm);
}

void FlatStrategy::update(double lr, optim::StepScalars* scalars) {
  if (optimizer_->on_device()) {
    optimizer_->begin_step_on_device(scalars);
    run_update(lr, 1.0F, true);
    return;
  }
  optim::StepScalars fetched;
  const optim::StepScalars* here = math_->on_host(scalars);
  if (here == nullptr) {  // states in host memory: their update is the host's, and it waits
    communicator_.read(&fetched, scalars, sizeof fetched);
    here = &fetched;
  }
  const bool applies = here->applied != 0;
  if (applies) {
    optimizer_->begin_step();
  }
  run_update(lr, here->coefficient, applies);
}

at::Device FlatStrategy::where() const {
  return options_.device == nullptr ? at::Device(at::kCPU) : device::torch_device(*options_.device);
}

void FlatStrategy::end_step() {
  if (!rebuilt_) {
    rebuild();
  }
}

void FlatStrategy::begin_evaluation() {
  broadcast_buffers();
  parameters_->begin_step();
  parameters_->begin_pass();
}

void FlatStrategy::end_evaluation() {
  parameters_->end_pass();
  parameters_->end_micro_steps();
}

void FlatStrategy::rebuild() {
  rebuilt_ = true;
  std::vector<std::int64_t> order = gradients_->arrival_order();
  // A parameter without gradient has no place in the order yet: it goes last.
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(facts_.size()); ++i) {
    if (std::ranges::find(order, i) == order.end()) {
      order.push_back(i);
    }
  }
  communicator_
      .broadcast(comm::host_buffer(order.data(), static_cast<std::int64_t>(order.size()), base::DType::int64), 0,
                 Purpose::control, 0)
      .wait();
  const auto planned = plan_groups_in_order(facts_, order, policy_, options_.precision.alignment());
  if (std::ranges::equal(
          planned, groups_, {}, [](const GroupPlan& plan) { return plan.layout.tensors; },
          [](const FlatGroup& group) { return group.plan.layout.tensors; })) {
    return;  // the first guess was right
  }
  // The update took this step's gradients: their memory is the first to go, so that two layouts never stand side by side whole.
  std::deque<FlatGroup> old = std::exchange(groups_, {});
  optimizer_->unbind();
  for (auto& group : old) {
    group.gradient = group.owned_gradient = torch::Tensor();
  }
  build(order);
  move_into_groups(std::move(old));
}

void FlatStrategy::move_into_groups(std::deque<FlatGroup> old) {
  struct Place {
    std::size_t group = 0;
    std::int64_t offset = 0;
  };
  std::vector<Place> was(facts_.size());
  for (std::size_t g = 0; g < old.size(); ++g) {
    for (const auto& tensor : old[g].plan.layout.tensors) {
      was[static_cast<std::size_t>(tensor.index)] = {g, tensor.offset};
    }
  }
  std::vector<optim::RangeLayout> ranges;
  std::vector<optim::StateMove> moves;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& tensor : groups_[g].plan.layout.tensors) {
      const auto& [from, offset] = was[static_cast<std::size_t>(tensor.index)];
      groups_[g].resting.narrow(0, tensor.offset, tensor.numel).copy_(old[from].resting.narrow(0, offset, tensor.numel));
      if (g < num_trainable_groups_ && tensor.numel > 0) {
        moves.push_back({from, offset, g, tensor.offset, tensor.numel});
      }
    }
    if (g < num_trainable_groups_) {
      ranges.push_back(range_of(groups_[g]));
    }
  }
  old.clear();
  optimizer_->relayout(ranges, moves);
  allocate_gradients();
  bind_optimizer();
}

}  // namespace shardmark::parallel
