#pragma once
// One element of an update, shared by host loops and device kernels. Coefficients are worked out in double and rounded once.

#include <cmath>
#include <cstdint>

#include "kernels/element.hpp"
#include "kernels/update.hpp"

namespace shardmark::kernels {

// No default values: a device block shares one.
struct AdamFactors {
  float coefficient;  // of the gradient
  float kept;         // of the parameter: 1 - lr x weight decay
  float decay;        // of the parameter into the gradient
  float first_share;  // 1 - beta1
  float second_kept;  // beta2
  float second_share;
  float step_size;   // lr / (1 - beta1^t)
  float root_bias2;  // sqrt(1 - beta2^t)
  float eps;
};

SM_HOST_DEVICE inline AdamFactors adam_factors(const AdamRule& rule, const UpdateState& state) {
  AdamFactors factors;
  factors.coefficient = state.coefficient;
  factors.kept = rule.decoupled ? static_cast<float>(1 - rule.lr * rule.weight_decay) : 1.0F;
  factors.decay = rule.decoupled ? 0.0F : static_cast<float>(rule.weight_decay);
  factors.first_share = static_cast<float>(1 - rule.beta1);
  factors.second_kept = static_cast<float>(rule.beta2);
  factors.second_share = static_cast<float>(1 - rule.beta2);
  factors.step_size = static_cast<float>(rule.lr / state.bias_correction1);
  factors.root_bias2 = static_cast<float>(std::sqrt(state.bias_correction2));
  factors.eps = static_cast<float>(rule.eps);
  return factors;
}

SM_HOST_DEVICE inline void adam_element(const AdamFactors& factors, float& parameter, float gradient, float& first,
                                        float& second) {
  gradient *= factors.coefficient;
  gradient = factors.decay != 0 ? gradient + parameter * factors.decay : gradient;
  first = first + factors.first_share * (gradient - first);
  second = second * factors.second_kept + factors.second_share * gradient * gradient;
  const float root = std::sqrt(second) / factors.root_bias2 + factors.eps;
  parameter = parameter * factors.kept - factors.step_size * first / root;
}

struct SgdFactors {
  float coefficient;  // of the gradient
  float decay;        // of the parameter into the gradient
  float momentum;
  float lr;
  bool first_step;
};

SM_HOST_DEVICE inline SgdFactors sgd_factors(const SgdRule& rule, const UpdateState& state) {
  SgdFactors factors;
  factors.coefficient = state.coefficient;
  factors.decay = static_cast<float>(rule.weight_decay);
  factors.momentum = static_cast<float>(rule.momentum);
  factors.lr = static_cast<float>(rule.lr);
  factors.first_step = state.steps == 1;
  return factors;
}

/// `momentum` of an SGD without momentum is neither read nor written.
SM_HOST_DEVICE inline void sgd_element(const SgdFactors& factors, float& parameter, float gradient, float& momentum) {
  gradient *= factors.coefficient;
  gradient = factors.decay != 0 ? gradient + parameter * factors.decay : gradient;
  if (factors.momentum != 0) {
    momentum = factors.first_step ? gradient : momentum * factors.momentum + gradient;
    gradient = momentum;
  }
  parameter -= gradient * factors.lr;
}

}  // namespace shardmark::kernels
