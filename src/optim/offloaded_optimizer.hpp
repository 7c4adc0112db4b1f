#pragma once
// An optimizer whose states rest in host memory and whose updates run there: parameters and gradients of a range are copied
// into staging memory, updated, and the parameters copied back. While a range is updated, the next one is copied in and the one
// before copied out.

#include <memory>

#include "device/copy_queue.hpp"
#include "optim/optimizer.hpp"

namespace shardmark::optim {

/// `rule` was made with OptimizerOptions::offload, so that its states count as host memory. It sees ranges in staging memory
/// and does its usual arithmetic: the same bits as without offload.
[[nodiscard]] std::unique_ptr<Optimizer> make_offloaded(std::unique_ptr<Optimizer> rule,
                                                        std::unique_ptr<device::CopyQueue> queue);

}  // namespace shardmark::optim
