#include "kernels/step_control.hpp"

#include "kernels/step_control_core.hpp"

namespace shardmark::kernels {

void finish_norm(StepScalars* scalars, const NormRule& rule) {
  finish_norm_of(*scalars, rule);
}

void begin_update(const StepScalars* scalars, UpdateState* state, double beta1, double beta2) {
  begin_update_of(*scalars, *state, beta1, beta2);
}

}  // namespace shardmark::kernels
