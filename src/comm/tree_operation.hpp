#pragma once
// What a reduction is to the kernels that carry it out.

#include "comm/communicator.hpp"
#include "kernels/tree_sum.hpp"

namespace shardmark::comm {

[[nodiscard]] inline kernels::TreeOperation tree_operation(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return kernels::TreeOperation::sum;
    case Reduction::max: return kernels::TreeOperation::max;
    case Reduction::min: return kernels::TreeOperation::min;
  }
  return kernels::TreeOperation::sum;
}

}  // namespace shardmark::comm
