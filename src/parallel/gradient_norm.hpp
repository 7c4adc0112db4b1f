#pragma once
// The norm of gradients whose parts lie on the ranks of a group.

#include <torch/torch.h>

#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::parallel {

struct GradientNorm {
  double norm = 0;
  bool finite = true;
};

/// L2 norm over all elements of `parts` (fp32 or bf16, flat). `shard`: ranks whose parts together are the whole gradient, or
/// nullptr if this rank has all of it. Collective over `shard`. `fast`: a sum in double; `ordered`: exact, the same however
/// the gradient is spread (see optim::ExactSquares).
[[nodiscard]] GradientNorm gradient_norm(const std::vector<torch::Tensor>& parts, comm::Communicator* shard,
                                         comm::SumOrder order);

}  // namespace shardmark::parallel
