#pragma once
// The memory of one group: parameters, gradients and their transient copies in flat buffers, whole or this rank's part. What
// lies where follows from policy and precision; when it changes hands is decided by ParameterFlow and GradientFlow.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>

#include "device/memory_ledger.hpp"
#include "model/parameter.hpp"
#include "optim/optimizer.hpp"
#include "parallel/group_plan.hpp"
#include "parallel/precision.hpp"

namespace shardmark::parallel {

[[nodiscard]] at::ScalarType scalar_type(base::DType type);

/// Zeroed flat memory on `where` that counts as `category`.
[[nodiscard]] torch::Tensor flat_zeros(std::int64_t numel, base::DType type, device::MemoryCategory category, at::Device where);
/// As flat_zeros, not zeroed.
[[nodiscard]] torch::Tensor flat_empty(std::int64_t numel, base::DType type, device::MemoryCategory category, at::Device where);

/// Gives the storage of a flat tensor fresh memory, or takes it away. Views of the tensor, also ones that autograd saved, see
/// the change; their version does not. Throws base::MemoryError naming `what()`. `planted`: asks for more than there can be.
void allocate_storage(const torch::Tensor& flat, device::MemoryCategory category, const std::function<std::string()>& what,
                      bool planted = false);
void free_storage(const torch::Tensor& flat);
[[nodiscard]] bool has_storage(const torch::Tensor& flat);

/// "unit NAME", or "the bucket that starts with PARAMETER" where groups are not units: for messages.
[[nodiscard]] std::string name_of(const GroupPlan& plan, const model::ParameterList& list);

struct FlatGroup {
  /// Allocates the parameters that persist on `where`. `shard` of policy.shards is this rank's part.
  FlatGroup(GroupPlan plan, const Policy& policy, const Precision& precision, std::int64_t shard, at::Device where);
  /// Allocates what persists of gradients; nothing for a frozen group.
  void allocate_gradients(const Policy& policy, const Precision& precision, GradientRules rules);

  GroupPlan plan;
  std::int64_t numel = 0;  // padded
  // What this rank updates, [owned_begin, owned_begin + owned_numel) of the group.
  std::int64_t owned_begin = 0;
  std::int64_t owned_numel = 0;

  /// All elements in the type of compute. Its storage comes and goes where `transient`.
  torch::Tensor working;
  bool transient = false;
  /// The owned part as it persists: a view of `working` where that persists in the same type; frozen: in the stored type, whole
  /// unless gathered.
  torch::Tensor resting;
  /// All elements in the stored type while a frozen group of another type than compute is gathered.
  torch::Tensor stored;

  /// Reduced gradients: whole, or the owned part where gradients are sharded. Type of Precision::gradient.
  torch::Tensor gradient;
  torch::Tensor owned_gradient;
  /// Whole fp32 sums of micro-steps, where nothing is reduced before the last (no_sync) and gradients are sharded.
  torch::Tensor accumulator;
  /// One micro-step's gradients on their way into a reduction; exists only then.
  torch::Tensor bucket;

  [[nodiscard]] at::Device where() const { return working.device(); }
  [[nodiscard]] torch::Tensor owned_of(const torch::Tensor& whole) const { return whole.narrow(0, owned_begin, owned_numel); }
};

}  // namespace shardmark::parallel
