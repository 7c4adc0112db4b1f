#pragma once
// Optimizers over flat ranges of parameters: one fused LibTorch call a range, nothing per tensor. Knows nothing of ranks: a
// strategy hands over whatever part of the flat buffers this rank updates.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardmark::optim {

struct OptimizerOptions {
  std::string name;  // sgd, adam, adamw
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
};

/// A part [begin, end) of a flat range, all of it decayed or none.
struct DecaySegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decayed = true;
};

/// One state of every element, as a flat tensor of the range's size.
struct NamedState {
  std::string name;  // "exp_avg", "exp_avg_sq", "momentum_buffer"
  at::Tensor values;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Binds flat fp32 parameters and gradients of equal size and allocates zeroed states. Local. Binding again (after the
  /// layout changed) keeps the step count and takes `states` as they are given, in the order of `states()`.
  virtual void bind(const at::Tensor& parameters, const at::Tensor& gradients, const std::vector<DecaySegment>& segments,
                    std::vector<at::Tensor> states) = 0;
  /// One update with learning rate `lr`. Local; the caller has reduced and clipped the gradients.
  virtual void step(double lr) = 0;

  [[nodiscard]] virtual std::vector<NamedState> states() const = 0;
  /// Bytes of all states of one element (design section 3, `s`).
  [[nodiscard]] virtual std::int64_t state_bytes_per_element() const = 0;
  /// Updates applied so far.
  [[nodiscard]] virtual std::int64_t steps() const = 0;
};

/// Throws base::ConfigError for an unknown name.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace shardmark::optim
