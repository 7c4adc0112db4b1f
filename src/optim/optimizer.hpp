#pragma once
// Optimizers over flat ranges of parameters: fused LibTorch calls over whole ranges, nothing per tensor. Knows nothing of
// ranks: a strategy hands over whatever parts of its flat buffers this rank updates.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace shardmark::optim {

struct OptimizerOptions {
  std::string name;  // sgd, adam, adamw
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  base::DType state = base::DType::fp32;  // fp32 or bf16: how states rest; arithmetic is fp32
};

/// A part [begin, end) of a range, all of it decayed or none.
struct DecaySegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decayed = true;
};

/// Contiguous parameters and their gradients, equal in size, each fp32 or bf16. Segments cover what is updated, in order;
/// their borders must not depend on how a run is sharded but where the layout aligns shards.
struct Range {
  at::Tensor parameters;
  at::Tensor gradients;
  std::vector<DecaySegment> segments;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Takes up ranges and allocates zeroed states. Local. Binding again (after the layout changed) keeps the step count and
  /// takes `states` as given: for each range the tensors of `state_names()`, in that order.
  virtual void bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) = 0;
  /// Lets go of the ranges and hands over the states; `bind` must follow. Keeps the step count.
  [[nodiscard]] virtual std::vector<std::vector<at::Tensor>> unbind() = 0;
  /// Starts one update of all ranges.
  virtual void begin_step() = 0;
  /// Updates one range with learning rate `lr`, gradients scaled by `coefficient` first (they may be left scaled). Local; the
  /// caller has reduced them.
  virtual void update(std::size_t range, double lr, float coefficient) = 0;

  [[nodiscard]] virtual const std::vector<std::string>& state_names() const = 0;  // "exp_avg", "exp_avg_sq", "momentum_buffer"
  [[nodiscard]] virtual const std::vector<std::vector<at::Tensor>>& states() const = 0;
  /// Bytes of all states of one element (design section 3, `s`).
  [[nodiscard]] virtual std::int64_t state_bytes_per_element() const = 0;
  /// Updates applied so far.
  [[nodiscard]] virtual std::int64_t steps() const = 0;
};

/// Throws base::ConfigError for an unknown name.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace shardmark::optim
