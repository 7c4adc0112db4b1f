#pragma once
// Low-rank adaptation (Hu et al. 2021): y = x W^T + (alpha / rank) dropout(x) A^T B^T beside a frozen W. Parameter names are
// those of the public adapter files.

#include <torch/torch.h>

#include <cstdint>
#include <set>
#include <string>

#include "model/layers.hpp"
#include "model/parameter.hpp"

namespace shardmark::model {

struct LoraConfig {
  std::int64_t rank = 0;  // 0: no adapters, all weights train
  double alpha = 0;
  double dropout = 0;
  std::set<std::string> targets;  // last parts of the names of projections: "q_proj"

  [[nodiscard]] bool adapts(const std::string& name) const {
    return rank > 0 && targets.contains(name.substr(name.rfind('.') + 1));
  }
};

/// Where the names of an adapter's parameters start, in public files.
inline const std::string kAdapterPrefix = "base_model.model.";

/// The added product of one projection. A starts uniform in +-1/sqrt(I), B zero: at first it adds nothing.
class LoraAdapter {
 public:
  LoraAdapter(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out,
              const LoraConfig& config);
  /// What is added to the projection's output, in the type of A and B. `x` of any type.
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x, const ForwardKey& key) const;

 private:
  Parameter* a_;  // (rank, I)
  Parameter* b_;  // (O, rank)
  double scale_;
  Dropout dropout_;
};

}  // namespace shardmark::model
