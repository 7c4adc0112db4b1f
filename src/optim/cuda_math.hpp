#pragma once
// FlatMath by kernels on a CUDA device.

#include <memory>

#include "optim/flat_math.hpp"

namespace shardmark::optim {

/// Kernels run on `device`'s stream of computation; lent.
[[nodiscard]] std::unique_ptr<FlatMath> make_cuda_math(device::Device& device);

}  // namespace shardmark::optim
