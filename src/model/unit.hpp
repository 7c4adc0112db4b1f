#pragma once
// A unit is the part of a model whose parameters come and go together under a sharding technique. A model runs each of its
// units through `run_unit`; units may enclose others (the root encloses all). Knows nothing of ranks: who gathers and frees
// listens as a UnitObserver.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/parameter.hpp"

namespace shardmark::model {

/// Called in the thread that runs forward or backward. Under torch::NoGradGuard no backward call follows.
class UnitObserver {
 public:
  UnitObserver() = default;
  UnitObserver(const UnitObserver&) = delete;
  UnitObserver& operator=(const UnitObserver&) = delete;
  virtual ~UnitObserver() = default;

  /// From its return until after_forward the unit's values must be whole. after_input_gradient will follow in backward if the
  /// input needs a gradient.
  virtual void before_forward(std::int64_t unit, bool input_needs_gradient) = 0;
  virtual void after_forward(std::int64_t unit) = 0;
  /// From its return until the unit's gradients are complete its values must be whole again.
  virtual void before_backward(std::int64_t unit) = 0;
  /// The gradient of the unit's input is complete. Comes only for an input that needs one.
  virtual void after_input_gradient(std::int64_t unit) = 0;
};

/// A unit's computation. It must use every differentiable tensor from outside the unit through `input` alone, must not change
/// `input` in place, and must compute the same when called again in the same step.
using UnitBody = std::function<torch::Tensor(const torch::Tensor& input)>;

/// Runs `body(input)` as the unit `unit` of `list`. `input` may be an integer tensor. With `list.checkpointing()` on and
/// `checkpointable`, activations inside are not kept: backward runs `body` again; gradients have the same bits. A
/// checkpointable unit encloses no other unit.
[[nodiscard]] torch::Tensor run_unit(const ParameterList& list, std::int64_t unit, const torch::Tensor& input,
                                     const UnitBody& body, bool checkpointable = false);

/// As UnitBody for a unit with several inputs or outputs (a feature pyramid). All inputs are differentiable tensors.
using UnitBodyOfMany = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>& inputs)>;

/// Likewise. Backward enters the unit once the gradients of all its outputs are known; each output must be used.
[[nodiscard]] std::vector<torch::Tensor> run_unit_of_many(const ParameterList& list, std::int64_t unit,
                                                          const std::vector<torch::Tensor>& inputs, const UnitBodyOfMany& body);

/// Whether this thread runs a unit's body a second time, for its backward: what a pass changes besides (running statistics)
/// must not change again.
[[nodiscard]] bool runs_again();

}  // namespace shardmark::model
