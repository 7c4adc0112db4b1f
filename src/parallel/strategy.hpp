#pragma once
// A way of spreading training over ranks. The trainer drives it step by step; it owns the flat buffers of parameters,
// gradients and optimizer state and every gradient and parameter collective. Knows nothing of workloads but their
// parameters and units.

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "device/memory_ledger.hpp"
#include "model/parameter.hpp"
#include "optim/optimizer.hpp"
#include "optim/step_scalars.hpp"
#include "parallel/policy.hpp"
#include "parallel/precision.hpp"

namespace shardmark::parallel {

struct StrategyOptions {
  comm::SumOrder order = comm::SumOrder::fast;
  std::int64_t micro_steps = 1;
  bool no_sync = false;              // technique.accumulation: reduce once after the last micro-step
  bool overlap = true;               // communicate under computation; false: gather at use, reduce after backward
  bool allow_unused = false;         // a parameter without gradient counts as zero instead of failing the run
  bool decay_matrices_only = false;  // optimizer.decay
  std::uint64_t seed = 0;            // of initial values
  Precision precision;
  optim::OptimizerOptions optimizer;
  base::FaultPlan* faults = nullptr;  // lent for the strategy's life; nullptr: none
  device::Device* device = nullptr;   // where training runs; lent; nullptr: host memory

  // What a technique's policy is made from. Empty: as `profile` has it.
  std::string profile = "native";  // native, fsdp2, deepspeed
  std::optional<std::int64_t> bucket_bytes;
  std::optional<std::int64_t> prefetch;  // units
  std::optional<AfterForward> after_forward;
  std::int64_t parts = 1;  // k of AfterForward::keep_part
  std::optional<std::int64_t> persistence_threshold;
  std::optional<std::int64_t> live_bytes;
  std::int64_t shard_group = 0;  // ranks that share one copy; 0 = all
};

/// First values of elements [first, first + out.size()) of a flattened parameter: from a checkpoint. Returns false to use the
/// parameter's own Init.
using InitialValue = std::function<bool(const model::Parameter&, std::int64_t first, std::span<float> out)>;

/// After all reductions of a step; equal on all ranks.
struct GradientSummary {
  double norm = 0;  // L2 of the global batch's gradient before clipping
  bool finite = true;
  std::string nonfinite;  // what is not finite: rank, parameter, unit and where; "" if finite
};

/// Parameters of which other ranks hold a copy too: ranks of equal `key` must have equal hashes.
struct Replica {
  std::uint64_t hash = 0;
  std::int64_t key = 0;
};

/// Nominal payload of one optimizer step on one rank, from the formulas of the technique (gradient + parameter).
struct Payload {
  double bytes = 0;
  double of_update = 0;  // what of it a step that is not applied does not send
};

struct NamedTensor {
  std::string name;
  torch::Tensor values;  // whole, unpadded, fp32
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Lays out and allocates the flat buffers, fills first values, binds every Parameter::value. Collective: ranks compare
  /// names, shapes and trainability first (MismatchError names the first difference). `list` must outlive the strategy.
  virtual void prepare(model::ParameterList& list, const InitialValue& initial) = 0;

  /// Collective order of one step: begin_step, then per micro-step begin_micro_step, forward, backward, end_micro_step;
  /// finish_gradients; update (or not); end_step.
  virtual void begin_step() = 0;
  virtual void begin_micro_step(std::int64_t index) = 0;
  /// Starts what is still due. Throws base::Error naming trainable parameters that got no gradient, unless allowed.
  virtual void end_micro_step() = 0;
  /// Waits for every reduction and computes the norm: exact and shard-blind under `ordered`, a double sum otherwise.
  [[nodiscard]] virtual GradientSummary finish_gradients() = 0;
  /// Scales gradients by `coefficient` (1 = not at all) and applies the optimizer.
  virtual void update(double lr, float coefficient) = 0;
  /// finish_gradients and update where the host does not wait for what training computes: results stay in `scalars`, in the
  /// memory where training runs. `scalars->loss` is that of the global batch already. Reductions whose result is not finite
  /// leave parameters and states as they are, and send updated parts all the same.
  virtual void finish_gradients(optim::StepScalars* scalars, double clip_norm) = 0;
  virtual void update(double lr, optim::StepScalars* scalars) = 0;
  /// After the first step: rebuilds buckets by the order in which gradients arrived. Collective.
  virtual void end_step() = 0;

  /// Forward passes without gradients, outside a step, lie between these: parameters are made whole for them as in a step, and
  /// nothing of that is left afterwards. Collective.
  virtual void begin_evaluation() = 0;
  virtual void end_evaluation() = 0;

  /// Whole parameters or reduced gradients, unpadded, in declaration order. Collective; full on rank 0 (others may be empty).
  /// Gradients are what the step reduced until `update` has used them.
  [[nodiscard]] virtual std::vector<NamedTensor> gather_parameters() = 0;
  /// Those that train.
  [[nodiscard]] virtual std::vector<NamedTensor> gather_trainable() = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> gather_gradients() = 0;
  /// One for each kind of copy, of all that rest so on this rank: tensors kept whole, parts that another group of ranks holds
  /// too. Of equal length on all ranks; empty where no two ranks hold the same.
  [[nodiscard]] virtual std::vector<Replica> replicas() const = 0;
  /// Flips the lowest bit of an element of what rests on this rank of the parameters, padding included (modulo their number;
  /// gathered units, then tensors kept whole, then the same of frozen ones): a planted fault.
  virtual void flip_bit(std::int64_t element) = 0;

  /// Of the layout now in use.
  [[nodiscard]] virtual std::int64_t padding_elements() const = 0;
  [[nodiscard]] virtual std::int64_t trainable_padding_elements() const = 0;
  [[nodiscard]] virtual Payload payload_per_step() const = 0;
  /// Bytes by category that the formulas of the technique give for this rank: what persists of parameters, gradients and
  /// optimizer state, and the peaks of gathered parameters and buckets in steady state.
  [[nodiscard]] virtual device::CategoryBytes predicted_bytes() const = 0;
};

/// Throws base::ConfigError for an unknown technique. The communicator must outlive the strategy.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(const std::string& technique, const StrategyOptions& options,
                                                      comm::Communicator& communicator);
/// The same technique's policy alone.
[[nodiscard]] Policy make_policy(const std::string& technique, const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] std::vector<std::string> technique_names();
/// Keys of the section `technique` that a technique leaves aside: what any preset may carry and only some techniques use.
[[nodiscard]] std::vector<std::string> unused_keys(const std::string& technique);

}  // namespace shardmark::parallel
