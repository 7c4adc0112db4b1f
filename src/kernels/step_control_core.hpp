#pragma once
// What follows from the sums of a step, shared by host and device: the norm, whether the step applies, what its update needs.

#include <cmath>
#include <cstdint>

#include "kernels/squares_core.hpp"
#include "kernels/step_control.hpp"

namespace shardmark::kernels {

SM_HOST_DEVICE inline bool is_finite_double(double value) {
  return value - value == 0;
}

SM_HOST_DEVICE inline double exact_norm_of(const StepScalars& scalars, const NormRule& rule) {
  if (!is_finite(scalars.largest)) {
    return static_cast<double>(NAN);
  }
  Wide total{0, 0};
  for (int r = 0; r < rule.num_gathered; ++r) {
    total = add_wide(total, {rule.gathered[2 * r], rule.gathered[2 * r + 1]});
  }
  const double value = std::ldexp(static_cast<double>(total.high), 64) + static_cast<double>(total.low);
  return std::ldexp(std::sqrt(value), -exact_half_exponent(scalars.largest));
}

SM_HOST_DEVICE inline void finish_norm_of(StepScalars& scalars, const NormRule& rule) {
  const double norm = rule.gathered == nullptr ? std::sqrt(scalars.squares) : exact_norm_of(scalars, rule);
  const bool finite = is_finite_double(norm);
  const double share = rule.clip / (norm + 1e-6);
  scalars.norm = norm;
  scalars.finite = finite ? 1 : 0;
  scalars.coefficient = rule.clip > 0 ? static_cast<float>(share < 1.0 ? share : 1.0) : 1.0F;
  scalars.applied = finite && is_finite_double(scalars.loss) ? 1 : 0;
}

SM_HOST_DEVICE inline void begin_update_of(const StepScalars& scalars, UpdateState& state, double beta1, double beta2) {
  state.applies = scalars.applied;
  state.coefficient = scalars.coefficient;
  if (state.applies == 0) {
    return;
  }
  state.steps += 1;
  const auto steps = static_cast<double>(state.steps);
  state.bias_correction1 = 1 - std::pow(beta1, steps);
  state.bias_correction2 = 1 - std::pow(beta2, steps);
}

}  // namespace shardmark::kernels
