#pragma once
// The numbers of a step that stay where training runs, under the name by which strategies and the trainer know them.

#include "kernels/step_scalars.hpp"

namespace shardmark::optim {

using kernels::StepScalars;

}  // namespace shardmark::optim
