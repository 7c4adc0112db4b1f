#include "parallel/replicated_strategy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "optim/vector_ops.hpp"
#include "parallel/gradient_hook.hpp"
#include "parallel/handshake.hpp"

namespace shardmark::parallel {
namespace {

using device::MemoryCategory;
using device::MemoryScope;

// Sums travel in pieces of their own, so buckets only set how early a reduction can start.
constexpr std::int64_t kFirstBucketBytes = 1 << 20;
constexpr std::int64_t kAutomaticBucketBytes = 4 << 20;

std::span<float> floats(const torch::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

torch::Tensor zeros(std::int64_t size, MemoryCategory category) {
  const MemoryScope scope(category);
  return at::zeros({size}, at::kFloat);
}

}  // namespace

struct ReplicatedStrategy::Hook : GradientHook {
  using GradientHook::GradientHook;
};

ReplicatedStrategy::ReplicatedStrategy(StrategyOptions options, comm::Communicator& communicator)
    : options_(std::move(options)), communicator_(communicator), optimizer_(optim::make_optimizer(options_.optimizer)) {
  SM_CHECK(options_.micro_steps >= 1, "at least one micro-step");
}

ReplicatedStrategy::~ReplicatedStrategy() = default;

void ReplicatedStrategy::prepare(model::ParameterList& list, const InitialValue& initial) {
  list_ = &list;
  compare_parameters(list, communicator_);
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < list.parameters().size(); ++i) {
    sizes_.push_back(list.parameters()[i].numel());
    order.push_back(static_cast<std::int64_t>(i));
  }
  offsets_.resize(sizes_.size());
  bucket_of_.resize(sizes_.size());
  // Backward meets the last layer first.
  std::ranges::reverse(order);
  compute_layouts(order);
  allocate();
  bind_views();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    auto& parameter = list.parameters()[i];
    const std::span<float> out(parameter.value.data_ptr<float>(), static_cast<std::size_t>(sizes_[i]));
    if (!initial || !initial(parameter, out)) {
      model::fill_initial(out, parameter.init, options_.seed, parameter.name, 0);
    }
  }
  rebuilt_ = communicator_.size() == 1 || trainable_.groups.empty();
}

void ReplicatedStrategy::compute_layouts(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> trained;
  std::vector<std::int64_t> fixed;
  for (const auto index : order) {
    (list_->parameters()[static_cast<std::size_t>(index)].trainable ? trained : fixed).push_back(index);
  }
  const auto elements = [](std::int64_t bytes) {
    return std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(sizeof(float)));
  };
  const std::int64_t bucket = elements(options_.bucket_bytes > 0 ? options_.bucket_bytes : kAutomaticBucketBytes);
  const std::int64_t first = std::min(bucket, elements(kFirstBucketBytes));
  trainable_ = make_layout(cut_buckets(trained, sizes_, first, bucket), sizes_, kAlignmentFp32, communicator_.size());
  frozen_ = fixed.empty() ? Layout{} : make_layout({fixed}, sizes_, kAlignmentFp32, communicator_.size());
  for (const Layout* layout : {&trainable_, &frozen_}) {
    for (std::size_t group = 0; group < layout->groups.size(); ++group) {
      for (const auto& tensor : layout->groups[group].tensors) {
        offsets_[static_cast<std::size_t>(tensor.index)] = tensor.offset;
        bucket_of_[static_cast<std::size_t>(tensor.index)] = group;
      }
    }
  }
}

void ReplicatedStrategy::allocate() {
  buffers_.parameters = zeros(trainable_.size, MemoryCategory::parameters);
  frozen_values_ = zeros(frozen_.size, MemoryCategory::parameters);
  buffers_.gradients = zeros(trainable_.size, MemoryCategory::gradients);
  if (options_.micro_steps > 1 && !options_.no_sync) {
    buffers_.partial = zeros(trainable_.size, MemoryCategory::buckets);
  }
}

void ReplicatedStrategy::bind_views() {
  hooks_.clear();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    auto& parameter = list_->parameters()[i];
    const auto& flat = parameter.trainable ? buffers_.parameters : frozen_values_;
    parameter.value = flat.narrow(0, offsets_[i], sizes_[i]).view(parameter.shape).detach().requires_grad_(parameter.trainable);
  }
  std::vector<optim::DecaySegment> segments;
  for (const auto& group : trainable_.groups) {
    for (std::size_t t = 0; t < group.tensors.size(); ++t) {
      const auto& tensor = group.tensors[t];
      const bool decayed =
          !options_.decay_matrices_only || list_->parameters()[static_cast<std::size_t>(tensor.index)].is_matrix();
      const std::int64_t end = t + 1 < group.tensors.size() ? group.tensors[t + 1].offset : group.end;
      if (!segments.empty() && segments.back().decayed == decayed) {
        segments.back().end = end;
      } else {
        segments.push_back({tensor.offset, end, decayed});
      }
    }
  }
  std::vector<at::Tensor> states;
  for (const auto& state : optimizer_->states()) {
    states.push_back(state.values);
  }
  optimizer_->bind(buffers_.parameters, buffers_.gradients, segments, std::move(states));
  install_hooks();
}

void ReplicatedStrategy::install_hooks() {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto& parameter = list_->parameters()[i];
    if (parameter.trainable) {
      hooks_.push_back(std::make_unique<Hook>(parameter.value, [this, i] { gradient_ready(i); }));
    }
  }
}

void ReplicatedStrategy::begin_step() {
  broadcast_buffers();
}

void ReplicatedStrategy::broadcast_buffers() {
  if (communicator_.size() == 1) {
    return;
  }
  for (auto& buffer : list_->buffers()) {
    const auto dtype = buffer.value.scalar_type() == at::kLong ? base::DType::int64 : base::DType::fp32;
    SM_CHECK(buffer.value.is_contiguous() && (dtype == base::DType::int64 || buffer.value.scalar_type() == at::kFloat),
             "model buffer " + buffer.name + " is neither contiguous fp32 nor int64");
    communicator_.broadcast({buffer.value.data_ptr(), buffer.value.numel(), dtype}, 0, comm::Purpose::buffer, ++collective_tag_)
        .wait();
  }
}

bool ReplicatedStrategy::reduces_now() const {
  return communicator_.size() > 1 && (!options_.no_sync || micro_step_ + 1 == options_.micro_steps);
}

void ReplicatedStrategy::begin_micro_step(std::int64_t index) {
  micro_step_ = index;
  arrived_.assign(sizes_.size(), false);
  missing_.resize(trainable_.groups.size());
  for (std::size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = static_cast<std::int64_t>(trainable_.groups[b].tensors.size());
  }
  next_bucket_ = 0;
}

void ReplicatedStrategy::gradient_ready(std::size_t index) {
  auto& parameter = list_->parameters()[index];
  auto& gradient = parameter.value.mutable_grad();
  SM_DCHECK(gradient.defined(), "hook of " + parameter.name + " without a gradient");
  const torch::Tensor dense = gradient.is_contiguous() ? gradient : gradient.contiguous();
  const std::span<const float> from(dense.data_ptr<float>(), static_cast<std::size_t>(sizes_[index]));
  const std::span<float> into = floats(target()).subspan(static_cast<std::size_t>(offsets_[index]), from.size());
  if (micro_step_ == 0 || buffers_.partial.defined()) {
    std::memcpy(into.data(), from.data(), from.size_bytes());
  } else {
    optim::add_in_place(into, from);
  }
  gradient.reset();
  arrived_[index] = true;
  if (!rebuilt_ && micro_step_ == 0) {
    arrival_order_.push_back(static_cast<std::int64_t>(index));
  }
  --missing_[bucket_of_[index]];
  if (options_.overlap && reduces_now()) {
    start_full_buckets();
    communicator_.progress();
  }
}

void ReplicatedStrategy::start_full_buckets() {
  // In the order of the layout on every rank, whatever order gradients arrive in.
  while (next_bucket_ < missing_.size() && missing_[next_bucket_] == 0) {
    start_bucket(next_bucket_++);
  }
}

void ReplicatedStrategy::start_bucket(std::size_t bucket) {
  const auto& group = trainable_.groups[bucket];
  const comm::Buffer buffer{target().data_ptr<float>() + group.begin, group.numel(), base::DType::fp32};
  pending_.push_back(
      communicator_.all_reduce(buffer, comm::Purpose::gradient, static_cast<std::int64_t>(bucket), options_.order));
}

void ReplicatedStrategy::end_micro_step() {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto& parameter = list_->parameters()[i];
    if (!parameter.trainable || arrived_[i]) {
      continue;
    }
    unused.push_back(parameter.name);
    if (micro_step_ == 0 || buffers_.partial.defined()) {
      std::ranges::fill(floats(target()).subspan(static_cast<std::size_t>(offsets_[i]), static_cast<std::size_t>(sizes_[i])),
                        0.0F);
    }
    --missing_[bucket_of_[i]];
  }
  if (!unused.empty() && !options_.allow_unused) {
    throw base::Error(base::ExitCode::failed,
                      fmt::format("no gradient reached {} trainable parameter(s): {}; freeze them, or set "
                                  "technique.unused_parameters = \"allow\"",
                                  unused.size(), base::join(unused, ", ")));
  }
  if (reduces_now()) {
    start_full_buckets();
  }
  if (buffers_.partial.defined()) {
    wait_for_buckets();
    if (micro_step_ == 0) {
      std::ranges::copy(floats(buffers_.partial), floats(buffers_.gradients).begin());
    } else {
      optim::add_in_place(floats(buffers_.gradients), floats(buffers_.partial));
    }
  }
}

void ReplicatedStrategy::wait_for_buckets() {
  for (auto& pending : pending_) {
    pending.wait();
  }
  pending_.clear();
}

GradientSummary ReplicatedStrategy::finish_gradients() {
  wait_for_buckets();
  GradientSummary summary;
  summary.norm = gradient_norm(summary.finite);
  if (!summary.finite) {
    summary.first_nonfinite = find_nonfinite();
  }
  return summary;
}

double ReplicatedStrategy::gradient_norm(bool& finite) const {
  const auto gradients = floats(buffers_.gradients);
  if (options_.order == comm::SumOrder::fast) {
    const double norm = std::sqrt(optim::sum_of_squares(gradients));
    finite = std::isfinite(norm);
    return norm;
  }
  // Every rank holds the whole reduced gradient, so its largest magnitude is already the one over ranks.
  const float largest = optim::largest_magnitude(gradients);
  finite = std::isfinite(largest);
  if (!finite) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const int exponent = optim::exact_scale_exponent(largest);
  return optim::norm_of(optim::exact_sum_of_squares(gradients, exponent), exponent);
}

std::string ReplicatedStrategy::find_nonfinite() const {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto& parameter = list_->parameters()[i];
    if (!parameter.trainable) {
      continue;
    }
    const auto values =
        floats(buffers_.gradients).subspan(static_cast<std::size_t>(offsets_[i]), static_cast<std::size_t>(sizes_[i]));
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      return parameter.name;
    }
  }
  return "";
}

void ReplicatedStrategy::update(double lr, float coefficient) {
  const torch::NoGradGuard no_grad;
  if (coefficient != 1.0F) {
    buffers_.gradients.mul_(coefficient);
  }
  optimizer_->step(lr);
}

void ReplicatedStrategy::end_step() {
  if (!rebuilt_) {
    rebuild();
  }
}

void ReplicatedStrategy::rebuild() {
  rebuilt_ = true;
  // A parameter without gradient has no place in the order yet: it goes last.
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (std::ranges::find(arrival_order_, static_cast<std::int64_t>(i)) == arrival_order_.end()) {
      arrival_order_.push_back(static_cast<std::int64_t>(i));
    }
  }
  communicator_
      .broadcast({arrival_order_.data(), static_cast<std::int64_t>(arrival_order_.size()), base::DType::int64}, 0,
                 comm::Purpose::control, 0)
      .wait();
  const Layout old = trainable_;
  const std::vector<std::int64_t> old_offsets = offsets_;
  compute_layouts(arrival_order_);
  const auto moved = [&](const torch::Tensor& flat, MemoryCategory category) {
    torch::Tensor fresh = zeros(trainable_.size, category);
    for (const auto& group : old.groups) {
      for (const auto& tensor : group.tensors) {
        const auto from = floats(flat).subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.numel));
        std::ranges::copy(from, floats(fresh).begin() + offsets_[static_cast<std::size_t>(tensor.index)]);
      }
    }
    return fresh;
  };
  buffers_.parameters = moved(buffers_.parameters, MemoryCategory::parameters);
  buffers_.gradients = moved(buffers_.gradients, MemoryCategory::gradients);
  if (buffers_.partial.defined()) {
    buffers_.partial = zeros(trainable_.size, MemoryCategory::buckets);
  }
  // The frozen buffer keeps its order: only backward's arrival matters. Its offsets follow the new order all the same.
  if (frozen_.size > 0) {
    torch::Tensor fresh = zeros(frozen_.size, MemoryCategory::parameters);
    for (const auto& tensor : frozen_.groups.front().tensors) {
      const auto index = static_cast<std::size_t>(tensor.index);
      const auto from =
          floats(frozen_values_).subspan(static_cast<std::size_t>(old_offsets[index]), static_cast<std::size_t>(tensor.numel));
      std::ranges::copy(from, floats(fresh).begin() + tensor.offset);
    }
    frozen_values_ = fresh;
  }
  std::vector<at::Tensor> states;
  for (const auto& state : optimizer_->states()) {
    states.push_back(moved(state.values, MemoryCategory::optimizer_state));
  }
  optimizer_->bind(buffers_.parameters, buffers_.gradients, {}, std::move(states));
  bind_views();
}

std::vector<NamedTensor> ReplicatedStrategy::cut_out(const torch::Tensor& flat, bool trainable_only) const {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto& parameter = list_->parameters()[i];
    if (parameter.trainable || !trainable_only) {
      const auto& source = parameter.trainable ? flat : frozen_values_;
      tensors.push_back({parameter.name, source.narrow(0, offsets_[i], sizes_[i]).view(parameter.shape)});
    }
  }
  return tensors;
}

std::vector<NamedTensor> ReplicatedStrategy::gather_parameters() {
  return cut_out(buffers_.parameters, false);
}
std::vector<NamedTensor> ReplicatedStrategy::gather_gradients() {
  return cut_out(buffers_.gradients, true);
}

std::uint64_t ReplicatedStrategy::parameter_hash() const {
  return optim::hash_bits(floats(buffers_.parameters));
}
std::span<float> ReplicatedStrategy::raw_parameters() {
  return floats(buffers_.parameters);
}

std::int64_t ReplicatedStrategy::padding_elements() const {
  return trainable_.padding + frozen_.padding;
}
std::int64_t ReplicatedStrategy::trainable_padding_elements() const {
  return trainable_.padding;
}

Payload ReplicatedStrategy::payload_per_step() const {
  const auto ranks = static_cast<double>(communicator_.size());
  const auto reductions = static_cast<double>(options_.no_sync ? 1 : options_.micro_steps);
  const double elements = 2.0 * reductions * static_cast<double>(trainable_.size) * (ranks - 1) / ranks;
  return {elements * static_cast<double>(sizeof(float)), "2 a T (N-1)/N x 4 bytes"};
}

device::CategoryBytes ReplicatedStrategy::predicted_bytes() const {
  device::CategoryBytes bytes{};
  const auto set = [&](MemoryCategory category, std::int64_t value) { bytes[static_cast<std::size_t>(category)] = value; };
  const auto width = static_cast<std::int64_t>(sizeof(float));
  set(MemoryCategory::parameters, (trainable_.size + frozen_.size) * width);
  set(MemoryCategory::gradients, trainable_.size * width);
  set(MemoryCategory::optimizer_state, trainable_.size * optimizer_->state_bytes_per_element());
  set(MemoryCategory::buckets, buffers_.partial.defined() ? trainable_.size * width : 0);
  return bytes;
}

}  // namespace shardmark::parallel
