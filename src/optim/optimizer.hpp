#pragma once
// Optimizers over flat ranges of parameters: fused LibTorch calls over whole ranges, nothing per tensor. Knows nothing of
// ranks: a strategy hands over whatever parts of its flat buffers this rank updates.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/copy_queue.hpp"
#include "device/device.hpp"
#include "device/memory_ledger.hpp"
#include "kernels/step_scalars.hpp"

namespace shardmark::optim {

struct OptimizerOptions {
  std::string name;  // sgd, adam, adamw, adamw8bit
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  base::DType state = base::DType::fp32;  // fp32 or bf16: how states rest; arithmetic is fp32
  /// Makes the queue through which ranges are copied to states that rest in host memory, and back; empty: states rest beside
  /// the parameters.
  device::MakeCopyQueue offload = nullptr;
  /// Where ranges lie; lent. nullptr: host memory.
  device::Device* device = nullptr;
};

/// A part [begin, end) of a range whose elements are updated alike.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decayed = true;
  bool small = false;  // of tensors below Optimizer::small_below elements
};

/// Segments cover what is updated, in order; their borders must not depend on how a run is sharded but where the layout aligns
/// shards.
struct RangeLayout {
  std::int64_t numel = 0;
  std::vector<Segment> segments;
};

/// Contiguous parameters and their gradients, equal in size, each fp32 or bf16.
struct Range {
  at::Tensor parameters;
  at::Tensor gradients;
  std::vector<Segment> segments;
};

/// Where the states of some elements go when ranges are cut anew. Offsets are multiples of the layout's alignment.
struct StateMove {
  std::size_t from_range = 0;
  std::int64_t from = 0;
  std::size_t to_range = 0;
  std::int64_t to = 0;
  std::int64_t numel = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Takes up ranges. Local. States are zeroed unless `relayout` left some, or `states` are given: for each range the tensors
  /// of `state_names()`, in that order. Keeps the step count.
  virtual void bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) = 0;
  /// Lets go of the ranges' tensors and keeps the states: `relayout` and `bind` follow.
  virtual void unbind() = 0;
  /// Cuts the states anew, one kind after another, so that no two layouts stand side by side whole.
  virtual void relayout(const std::vector<RangeLayout>& ranges, const std::vector<StateMove>& moves) = 0;
  /// Further copies of the parameters in the type of compute, one for each bound range (an undefined tensor: none), which each
  /// update is to write in the same pass. For the ranges bound now. False: it will not, and whoever wants them copies.
  virtual bool set_working(std::vector<at::Tensor> working);
  /// Starts one update of all ranges, in their order. Gradients are final from here on.
  virtual void begin_step() = 0;
  /// Whether ranges lie on a device and updates are enqueued there: then `begin_step_on_device` takes the place of `begin_step`
  /// and gets the step's scalars, which lie there too: they say whether the step changes anything and how gradients are scaled.
  [[nodiscard]] virtual bool on_device() const { return false; }
  virtual void begin_step_on_device(const kernels::StepScalars* scalars);
  /// Updates one range with learning rate `lr`, gradients scaled by `coefficient` first (they may be left scaled). Local; the
  /// caller has reduced them.
  virtual void update(std::size_t range, double lr, float coefficient) = 0;
  /// Returns when the new parameters of a range are in place: called for each range of a step after its update.
  virtual void finish(std::size_t range);
  /// So many further ranges are best updated between the update of a range and its `finish`, which else waits.
  [[nodiscard]] virtual std::size_t lag() const { return 0; }

  [[nodiscard]] virtual const std::vector<std::string>& state_names() const = 0;  // "exp_avg", "exp_avg_sq", "momentum_buffer"
  [[nodiscard]] virtual const std::vector<std::vector<at::Tensor>>& states() const = 0;
  /// Bytes of all states of a range.
  [[nodiscard]] virtual std::int64_t state_bytes(const RangeLayout& range) const = 0;
  /// Bytes that persist while such ranges are bound, whose parameters and gradients rest in these types.
  [[nodiscard]] virtual device::CategoryBytes persistent_bytes(const std::vector<RangeLayout>& ranges, base::DType parameters,
                                                               base::DType gradients) const;
  /// Tensors of fewer elements are marked in segments; 0 = none are treated apart.
  [[nodiscard]] virtual std::int64_t small_below() const { return 0; }
  /// Updates applied so far.
  [[nodiscard]] virtual std::int64_t steps() const = 0;
};

/// Elements that share something in the optimizer's states: tensors and shards start at multiples of it. 1 = nothing.
[[nodiscard]] std::int64_t state_block(const std::string& name);

/// Throws base::ConfigError for an unknown name.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace shardmark::optim
