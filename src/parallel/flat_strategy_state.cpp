// What FlatStrategy tells of itself: whole tensors, hashes, predictions.

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/random.hpp"
#include "optim/vector_ops.hpp"
#include "parallel/comm_buffer.hpp"
#include "parallel/flat_strategy.hpp"
#include "parallel/plan_technique.hpp"

namespace shardmark::parallel {
namespace {

/// Cuts whole tensors out of one group's whole buffer into their places by parameter.
void cut_out(const FlatGroup& group, const torch::Tensor& whole, const model::ParameterList& list,
             std::vector<torch::Tensor>& by_parameter) {
  for (const auto& tensor : group.plan.layout.tensors) {
    const auto& shape = list.parameters()[static_cast<std::size_t>(tensor.index)].shape;
    by_parameter[static_cast<std::size_t>(tensor.index)] = whole.narrow(0, tensor.offset, tensor.numel).view(shape);
  }
}

std::vector<NamedTensor> named(const std::vector<torch::Tensor>& by_parameter, const model::ParameterList& list) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < by_parameter.size(); ++i) {
    if (by_parameter[i].defined()) {
      tensors.push_back({list.parameters()[i].name, by_parameter[i].to(at::kCPU, at::kFloat)});
    }
  }
  return tensors;
}

/// What persists of a group's parameters on this rank and is read by forward, at once or through a gather.
const torch::Tensor& resting_values(const FlatGroup& group) {
  return group.transient ? group.resting : group.working;
}

std::uint64_t hash_of(const torch::Tensor& flat) {
  const torch::Tensor here = flat.cpu();  // itself, where it lies in host memory
  return optim::hash_bytes({static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes()});
}

}  // namespace

std::vector<NamedTensor> FlatStrategy::gather_parameters() {
  return gather_of(groups_.size());
}

std::vector<NamedTensor> FlatStrategy::gather_trainable() {
  return gather_of(num_trainable_groups_);  // frozen ones come last
}

std::vector<NamedTensor> FlatStrategy::gather_of(std::size_t num_groups) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> by_parameter(facts_.size());
  for (std::size_t g = 0; g < num_groups; ++g) {
    cut_out(groups_[g], parameters_->whole(groups_[g]), *list_, by_parameter);
  }
  return named(by_parameter, *list_);
}

std::vector<NamedTensor> FlatStrategy::gather_gradients() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> by_parameter(facts_.size());
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    const auto& group = groups_[g];
    torch::Tensor whole = group.owned_gradient;
    if (group.owned_numel != group.numel) {
      whole = flat_empty(group.numel, dtype_of(group.owned_gradient), device::MemoryCategory::other, group.where());
      scatter_communicator()
          .all_gather(comm_buffer(group.owned_gradient), comm_buffer(whole), comm::Purpose::control, 0)
          .wait();
    }
    cut_out(group, whole, *list_, by_parameter);
  }
  return named(by_parameter, *list_);
}

std::vector<Replica> FlatStrategy::replicas() const {
  std::optional<Replica> whole;
  std::optional<Replica> part;
  const auto mix = [](std::optional<Replica>& into, std::int64_t key, const torch::Tensor& values) {
    into = {base::hash_mix(into ? into->hash : 0, hash_of(values)), key};
  };
  const bool parts_have_copies = communicator_.size() > policy_.shards;
  for (const auto& group : groups_) {
    if (group.numel == 0) {
      continue;
    }
    if (!group.plan.gathered && communicator_.size() > 1) {
      mix(whole, 0, resting_values(group));
    }
    const bool master_beside = dtype_of(group.resting) != dtype_of(group.working);
    if (parts_have_copies && (group.plan.gathered || (group.plan.trainable && policy_.shard_state && master_beside))) {
      mix(part, communicator_.rank() % policy_.shards, group.resting);
    }
  }
  std::vector<Replica> replicas;
  for (const auto& kind : {whole, part}) {
    if (kind) {
      replicas.push_back(*kind);
    }
  }
  return replicas;
}

void FlatStrategy::flip_bit(std::int64_t element) {
  std::int64_t all = 0;
  for (const auto& group : groups_) {
    all += resting_values(group).numel();
  }
  SM_CHECK(all > 0, "no parameter to flip a bit of");
  element = (element % all + all) % all;
  for (const auto& group : groups_) {
    const torch::Tensor& values = resting_values(group);
    if (element < values.numel()) {
      const torch::Tensor bytes = values.narrow(0, element, 1).view(at::kByte).narrow(0, 0, 1);
      bytes.bitwise_xor_(1);
      return;
    }
    element -= values.numel();
  }
}

std::vector<GroupPlan> FlatStrategy::plans() const {
  std::vector<GroupPlan> plans;
  for (const auto& group : groups_) {
    plans.push_back(group.plan);
  }
  return plans;
}

StepShape FlatStrategy::shape() const {
  return step_shape(options_, communicator_.size(), *optimizer_, communicator_.rank() % policy_.shards);
}

std::int64_t FlatStrategy::padding_elements() const {
  std::int64_t padding = 0;
  for (const auto& group : groups_) {
    padding += padding_of(group.plan);
  }
  return padding;
}

std::int64_t FlatStrategy::trainable_padding_elements() const {
  std::int64_t padding = 0;
  for (std::size_t g = 0; g < num_trainable_groups_; ++g) {
    padding += padding_of(groups_[g].plan);
  }
  return padding;
}

Payload FlatStrategy::payload_per_step() const {
  return {predicted_payload(plans(), visited_by_backward(facts_), policy_, options_.precision, shape()),
          predicted_update_payload(plans(), policy_, options_.precision)};
}

device::CategoryBytes FlatStrategy::predicted_bytes() const {
  auto bytes = predicted_persistent(plans(), policy_, options_.precision, shape());
  const auto transient = predicted_transient(plans(), facts_, list_->units(), policy_, options_.precision, shape());
  bytes[static_cast<std::size_t>(device::MemoryCategory::gathered)] =
      std::max(transient.gathered_forward, transient.gathered_backward);
  bytes[static_cast<std::size_t>(device::MemoryCategory::buckets)] = transient.buckets;
  return bytes;
}

}  // namespace shardmark::parallel
