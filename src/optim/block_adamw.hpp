#pragma once
// AdamW whose moments rest as 8-bit codes with one fp32 scale for each 256 elements (kernels/adam8bit.hpp): 2.03 bytes an
// element instead of 8. Tensors under 4,096 elements keep fp32 moments: they are few, and biases and norms suffer most from
// coding.

#include <memory>

#include "optim/optimizer.hpp"

namespace shardmark::optim {

/// Ranges must begin at multiples of kernels::kAdam8bitBlock within their tensors, and end there.
[[nodiscard]] std::unique_ptr<Optimizer> make_block_adamw(const OptimizerOptions& options);

}  // namespace shardmark::optim
