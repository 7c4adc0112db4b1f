#pragma once
// Layers shared by the reference models. Single-device code: parameters are declared in a ParameterList, values are bound
// from outside. Letters: N rows, I width in, O width out.

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "model/parameter.hpp"

namespace shardmark::model {

/// Where a forward pass stands: keys of everything random in it, so that masks do not depend on ranks or micro-batches.
struct ForwardKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_slot = 0;  // place of the first row in the step's global batch
  bool training = true;
};

/// y_NO = x_NI W^T + b. Weight and bias start uniform in +-1/sqrt(I), the public default.
class Linear {
 public:
  Linear(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NI) const;

 private:
  Parameter* weight_;  // (O, I)
  Parameter* bias_;    // (O)
};

/// Zeroes each element with probability p and scales the rest by 1/(1-p). Element e of the row in global slot s is decided
/// by (seed, step, layer name, s, e) alone.
class Dropout {
 public:
  Dropout(std::string name, double probability);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NI, const ForwardKey& key) const;

 private:
  std::string name_;
  double probability_;
};

}  // namespace shardmark::model
