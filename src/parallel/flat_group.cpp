#include "parallel/flat_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"

namespace shardmark::parallel {

using device::MemoryCategory;
using device::MemoryScope;

at::ScalarType scalar_type(base::DType type) {
  SM_CHECK(type == base::DType::fp32 || type == base::DType::bf16, "parameters and gradients are fp32 or bf16");
  return type == base::DType::bf16 ? at::kBFloat16 : at::kFloat;
}

torch::Tensor flat_zeros(std::int64_t numel, base::DType type, MemoryCategory category, at::Device where) {
  const MemoryScope scope(category);
  return at::zeros({numel}, at::TensorOptions(where).dtype(scalar_type(type)));
}

torch::Tensor flat_empty(std::int64_t numel, base::DType type, MemoryCategory category, at::Device where) {
  const MemoryScope scope(category);
  return at::empty({numel}, at::TensorOptions(where).dtype(scalar_type(type)));
}

void allocate_storage(const torch::Tensor& flat, MemoryCategory category, const std::function<std::string()>& what,
                      bool planted) {
  const MemoryScope scope(category);
  auto* storage = flat.storage().unsafeGetStorageImpl();
  const auto bytes = flat.nbytes();
  constexpr std::size_t kMoreThanThereIs = std::size_t{1} << 60U;
  try {
    storage->set_data_ptr_noswap(c10::GetAllocator(flat.device().type())->allocate(planted ? kMoreThanThereIs : bytes));
  } catch (const std::exception& error) {
    throw base::MemoryError(
        fmt::format("{}: no memory for {} bytes ({}); a smaller technique.prefetch or "
                    "technique.live_parameters_mb, or more ranks, need less",
                    what(), bytes, error.what()));
  }
  storage->set_nbytes(bytes);
}

void free_storage(const torch::Tensor& flat) {
  auto* storage = flat.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, flat.device()));
  storage->set_nbytes(0);
}

bool has_storage(const torch::Tensor& flat) {
  return flat.storage().nbytes() > 0;
}

std::string name_of(const GroupPlan& plan, const model::ParameterList& list) {
  if (plan.unit >= 0) {
    return "unit " + list.units()[static_cast<std::size_t>(plan.unit)];
  }
  return "the bucket that starts with " + list.parameters()[static_cast<std::size_t>(plan.layout.tensors.front().index)].name;
}

FlatGroup::FlatGroup(GroupPlan group, const Policy& policy, const Precision& precision, std::int64_t shard, at::Device where)
    : plan(std::move(group)), numel(plan.layout.numel()) {
  const bool owns_part = plan.trainable ? policy.shard_state : plan.gathered;
  owned_numel = owns_part ? numel / policy.shards : numel;
  owned_begin = owns_part ? shard * owned_numel : 0;
  const base::DType rests_as = plan.trainable ? precision.parameters : precision.frozen;
  const bool same_type = rests_as == precision.compute;
  // zero1 and zero2 keep a whole working copy beside the part that they update; otherwise a copy in another type is made
  // when it is used.
  transient = plan.gathered || (!same_type && !(plan.trainable && policy.shard_state));
  working = flat_zeros(numel, precision.compute, transient ? MemoryCategory::gathered : MemoryCategory::parameters, where);
  resting =
      same_type && !plan.gathered ? owned_of(working) : flat_zeros(owned_numel, rests_as, MemoryCategory::parameters, where);
}

void FlatGroup::allocate_gradients(const Policy& policy, const Precision& precision, GradientRules rules) {
  if (!plan.trainable) {
    return;
  }
  const base::DType gradient_type = precision.gradient(rules.micro_steps);
  if (policy.shard_gradients) {
    gradient = owned_gradient = flat_zeros(owned_numel, gradient_type, MemoryCategory::gradients, where());
    if (rules.accumulates()) {
      accumulator = flat_zeros(numel, base::DType::fp32, MemoryCategory::gradients, where());
    }
  } else {
    gradient = flat_zeros(numel, gradient_type, MemoryCategory::gradients, where());
    owned_gradient = owned_of(gradient);
  }
}

}  // namespace shardmark::parallel
