// Adam, AdamW and SGD against their formulas in double, whose distance is bounded rounding by rounding, and against LibTorch's
// fused optimizers.

#include "kernels/update.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "tests/support/elements.hpp"

namespace shardmark::kernels {
namespace {

using testing::kFp32Rounding;
using testing::kKernelSizes;
using testing::kStoring;
using testing::kTypeOf;
using testing::normal_elements;
using testing::value_of;

/// Products of two roundings, which bounds of first order leave out.
constexpr double kSecondOrder = 1.01;

template <typename P, typename G, typename S>
struct Operands {
  explicit Operands(std::int64_t count)
      : parameters(normal_elements<P>("parameters", count)),
        gradients(normal_elements<G>("gradients", count, 0.1F)),
        first(normal_elements<S>("first", count, 0.05F)),
        second(normal_elements<S>("second", count, 0.1F)),
        bf16_copy(parameters.size()),
        fp32_copy(parameters.size()) {
    for (auto& value : second) {
      value = Element<S>::round(Element<S>::widen(value) * Element<S>::widen(value));
    }
  }
  [[nodiscard]] UpdateRange range() {
    return {.parameters = parameters.data(),
            .parameters_type = kTypeOf<P>,
            .gradients = gradients.data(),
            .gradients_type = kTypeOf<G>,
            .count = static_cast<std::int64_t>(parameters.size())};
  }
  [[nodiscard]] AdamMoments moments() { return {first.data(), second.data(), kTypeOf<S>}; }

  std::vector<P> parameters;
  std::vector<G> gradients;
  std::vector<S> first;
  std::vector<S> second;
  std::vector<Bf16> bf16_copy;
  std::vector<float> fp32_copy;
};

UpdateState state_of(std::int64_t steps, double beta1, double beta2) {
  const auto power = static_cast<double>(steps);
  return {.steps = steps,
          .applies = 1,
          .coefficient = 0.7F,
          .bias_correction1 = 1 - std::pow(beta1, power),
          .bias_correction2 = 1 - std::pow(beta2, power)};
}

/// A value and how far one fp32 evaluation may lie from it.
struct Bounded {
  double value = 0;
  double error = 0;
};
struct AdamResult {
  Bounded parameter;
  Bounded first;
  Bounded second;
};

/// One step in double. Errors in units of one rounding u = 2^-24 relative; a coefficient worked out in double brings one.
AdamResult adam_oracle(const AdamRule& rule, const UpdateState& state, double p, double g, double m, double v) {
  constexpr double u = kFp32Rounding * kSecondOrder;
  const double decay = rule.decoupled ? 0 : rule.weight_decay;
  const double kept = rule.decoupled ? 1 - rule.lr * rule.weight_decay : 1;
  const double share = 1 - rule.beta1;
  const double scaled = g * static_cast<double>(state.coefficient);
  const double gradient = scaled + decay * p;
  // The scaling, then two for the decay's product and one for the sum, which may cancel: 3 of the magnitudes.
  const double gradient_size = std::fabs(scaled) + std::fabs(decay * p);
  AdamResult result;
  // The gradient's 3, then the difference, the share, the product (of |g| + |m|) and the sum: 8 of the magnitudes.
  result.first.value = m + share * (gradient - m);
  result.first.error = 8 * u * (std::fabs(m) + share * gradient_size);
  // Coefficient, two products, the sum, and twice the gradient's 3: 10.
  result.second.value = rule.beta2 * v + (1 - rule.beta2) * gradient * gradient;
  result.second.error = 10 * u * (rule.beta2 * v + (1 - rule.beta2) * gradient_size * gradient_size);
  // sqrt(v + e) - sqrt(v) < e / sqrt(v); then the root, its correction's rounding, the quotient, eps and the sum: 5.
  const double root = std::sqrt(result.second.value);
  const double root_bias2 = std::sqrt(state.bias_correction2);
  const double below = root / root_bias2 + rule.eps;
  const double below_error = result.second.error / root / root_bias2 + 5 * u * below;
  const double step_size = rule.lr / state.bias_correction1;
  const double step = step_size * result.first.value / below;
  // Step size, product, quotient: 3, and what m and the root bring.
  const double step_error =
      3 * u * std::fabs(step) + step_size * result.first.error / below + std::fabs(step) * below_error / below;
  // What is kept, its product, the difference.
  result.parameter.value = kept * p - step;
  result.parameter.error = 3 * u * std::fabs(p) + u * std::fabs(step) + step_error;
  return result;
}

template <typename T>
void expect_within(T found, const Bounded& expected, const std::string& what) {
  EXPECT_NEAR(value_of(found), expected.value, expected.error + kStoring<T> * std::fabs(expected.value)) << what;
}

template <typename T>
class Update : public ::testing::Test {};
using Types = ::testing::Types<std::tuple<float, float, float>, std::tuple<float, Bf16, float>, std::tuple<float, float, Bf16>,
                               std::tuple<float, Bf16, Bf16>, std::tuple<Bf16, float, float>, std::tuple<Bf16, Bf16, float>,
                               std::tuple<Bf16, float, Bf16>, std::tuple<Bf16, Bf16, Bf16>>;
TYPED_TEST_SUITE(Update, Types);

template <typename Tuple>
using OperandsOf = Operands<std::tuple_element_t<0, Tuple>, std::tuple_element_t<1, Tuple>, std::tuple_element_t<2, Tuple>>;

TYPED_TEST(Update, AdamEqualsItsFormulas) {
  for (const bool decoupled : {true, false}) {
    // beta1 below a half: there LibTorch takes the first moment from the gradient's end.
    for (const double beta1 : {0.9, 0.3}) {
      const AdamRule rule{.lr = 3e-3, .beta1 = beta1, .weight_decay = 0.1, .decoupled = decoupled};
      for (const std::int64_t size : kKernelSizes) {
        if (size > 1000 && (beta1 < 0.5 || !decoupled)) {
          continue;
        }
        const UpdateState state = state_of(7, rule.beta1, rule.beta2);
        OperandsOf<TypeParam> before(size);
        auto after = before;
        adamw_update(after.range(), after.moments(), rule, &state);
        for (std::size_t i = 0; i < before.parameters.size() && !this->HasFailure(); ++i) {
          const auto expected = adam_oracle(rule, state, value_of(before.parameters[i]), value_of(before.gradients[i]),
                                            value_of(before.first[i]), value_of(before.second[i]));
          const std::string where = std::to_string(i) + " of " + std::to_string(size);
          expect_within(after.parameters[i], expected.parameter, "parameter " + where);
          expect_within(after.first[i], expected.first, "first moment " + where);
          expect_within(after.second[i], expected.second, "second moment " + where);
        }
      }
    }
  }
}

TYPED_TEST(Update, SgdEqualsItsFormulas) {
  constexpr double u = kFp32Rounding * kSecondOrder;
  for (const double momentum : {0.0, 0.9}) {
    for (const std::int64_t steps : {1, 2}) {
      for (const std::int64_t size : kKernelSizes) {
        if (size > 1000 && momentum == 0) {
          continue;
        }
        const SgdRule rule{.lr = 0.05, .momentum = momentum, .weight_decay = 0.01};
        const UpdateState state = state_of(steps, 0.9, 0.999);
        OperandsOf<TypeParam> before(size);
        auto after = before;
        sgd_update(after.range(), momentum != 0 ? after.first.data() : nullptr, after.moments().type, rule, &state);
        for (std::size_t i = 0; i < before.parameters.size() && !this->HasFailure(); ++i) {
          const double p = value_of(before.parameters[i]);
          const double g = value_of(before.gradients[i]) * static_cast<double>(state.coefficient);
          const double old = steps == 1 ? 0 : momentum * value_of(before.first[i]);
          // The gradient's 3 roundings (as for Adam), those of momentum and sum: 4 of the magnitudes. Then lr, the product and
          // the difference.
          const double size_of_step = std::fabs(old) + std::fabs(g) + std::fabs(rule.weight_decay * p);
          const Bounded buffer{old + g + rule.weight_decay * p, 4 * u * size_of_step};
          const Bounded parameter{p - rule.lr * buffer.value, u * std::fabs(p) + rule.lr * 7 * u * size_of_step};
          expect_within(after.parameters[i], parameter, std::to_string(i) + " of " + std::to_string(size));
          if (momentum != 0) {
            expect_within(after.first[i], buffer, std::to_string(i) + " of " + std::to_string(size));
          } else {
            EXPECT_EQ(value_of(after.first[i]), value_of(before.first[i]));
          }
        }
      }
    }
  }
}

TYPED_TEST(Update, WorkingCopiesAreTheRestingParameters) {
  const UpdateState state = state_of(3, 0.9, 0.999);
  for (const bool adam : {true, false}) {
    OperandsOf<TypeParam> operands(1003);
    const auto update = [&](void* working, base::DType type) {
      UpdateRange range = operands.range();
      range.working = working;
      range.working_type = type;
      if (adam) {
        adamw_update(range, operands.moments(), {.lr = 0.01}, &state);
      } else {
        sgd_update(range, operands.first.data(), operands.moments().type, {.lr = 0.01, .momentum = 0.9}, &state);
      }
    };
    update(operands.bf16_copy.data(), base::DType::bf16);
    for (std::size_t i = 0; i < operands.parameters.size(); ++i) {
      const auto resting = static_cast<float>(value_of(operands.parameters[i]));
      EXPECT_EQ(operands.bf16_copy[i].bits, Element<Bf16>::round(resting).bits);
    }
    update(operands.fp32_copy.data(), base::DType::fp32);
    for (std::size_t i = 0; i < operands.parameters.size(); ++i) {
      EXPECT_EQ(operands.fp32_copy[i], static_cast<float>(value_of(operands.parameters[i])));
    }
  }
}

TYPED_TEST(Update, AStepThatDoesNotApplyChangesNothing) {
  UpdateState state = state_of(3, 0.9, 0.999);
  state.applies = 0;
  OperandsOf<TypeParam> before(33);
  auto after = before;
  UpdateRange range = after.range();
  range.working = after.fp32_copy.data();
  range.working_type = base::DType::fp32;
  adamw_update(range, after.moments(), {.lr = 1}, &state);
  sgd_update(range, after.first.data(), after.moments().type, {.lr = 1, .momentum = 0.9}, &state);
  for (std::size_t i = 0; i < before.parameters.size(); ++i) {
    EXPECT_EQ(value_of(after.parameters[i]), value_of(before.parameters[i]));
    EXPECT_EQ(value_of(after.first[i]), value_of(before.first[i]));
    EXPECT_EQ(value_of(after.second[i]), value_of(before.second[i]));
    EXPECT_EQ(after.fp32_copy[i], 0);
  }
}

TYPED_TEST(Update, NaNAndInfinityStayVisible) {
  const UpdateState state = state_of(3, 0.9, 0.999);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    OperandsOf<TypeParam> operands(33);
    operands.gradients[5] = Element<std::tuple_element_t<1, TypeParam>>::round(bad);
    adamw_update(operands.range(), operands.moments(), {.lr = 0.01}, &state);
    EXPECT_FALSE(std::isfinite(value_of(operands.parameters[5])));
    EXPECT_FALSE(std::isfinite(value_of(operands.first[5])));
    EXPECT_TRUE(std::isfinite(value_of(operands.parameters[4])));
  }
}

at::Tensor tensor_of(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}).clone();
}

using Fp32Operands = Operands<float, float, float>;

// LibTorch evaluates the same formulas in fp32 with these roundings or, where it joins two, fewer: either side lies within the
// oracle's bound, so both lie within twice that of each other. In units of 2^-24: 16 of |m| + (1 - beta1) |g|, 20 of the second
// moment.
TEST(UpdateAgainstLibTorch, AdamAndAdamW) {
  for (const bool decoupled : {true, false}) {
    for (const double beta1 : {0.9, 0.3}) {
      const AdamRule rule{.lr = 3e-3, .beta1 = beta1, .weight_decay = 0.1, .decoupled = decoupled};
      UpdateState state = state_of(7, rule.beta1, rule.beta2);
      state.coefficient = 1;
      const Fp32Operands before(10'007);
      auto ours = before;
      adamw_update(ours.range(), ours.moments(), rule, &state);
      const at::Tensor p = tensor_of(before.parameters);
      const at::Tensor g = tensor_of(before.gradients);
      const at::Tensor m = tensor_of(before.first);
      const at::Tensor v = tensor_of(before.second);
      const at::Tensor steps = at::full({}, 7.0F);
      if (decoupled) {
        at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {steps}, rule.lr, rule.beta1, rule.beta2, rule.weight_decay, rule.eps,
                          /*amsgrad=*/false, /*maximize=*/false);
      } else {
        at::_fused_adam_({p}, {g}, {m}, {v}, {}, {steps}, rule.lr, rule.beta1, rule.beta2, rule.weight_decay, rule.eps,
                         /*amsgrad=*/false, /*maximize=*/false);
      }
      for (std::size_t i = 0; i < before.parameters.size(); ++i) {
        const auto expected = adam_oracle(rule, state, value_of(before.parameters[i]), value_of(before.gradients[i]),
                                          value_of(before.first[i]), value_of(before.second[i]));
        EXPECT_NEAR(ours.parameters[i], p.const_data_ptr<float>()[i], 2 * expected.parameter.error) << i;
        EXPECT_NEAR(ours.first[i], m.const_data_ptr<float>()[i], 2 * expected.first.error) << i;
        EXPECT_NEAR(ours.second[i], v.const_data_ptr<float>()[i], 2 * expected.second.error) << i;
      }
    }
  }
}

TEST(UpdateAgainstLibTorch, Sgd) {
  const SgdRule rule{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  for (const std::int64_t steps : {1, 2}) {
    UpdateState state = state_of(steps, 0.9, 0.999);
    state.coefficient = 1;
    const Fp32Operands before(10'007);
    auto ours = before;
    sgd_update(ours.range(), ours.first.data(), base::DType::fp32, rule, &state);
    const at::Tensor p = tensor_of(before.parameters);
    const at::Tensor g = tensor_of(before.gradients);
    const at::Tensor buffer = tensor_of(before.first);
    at::_fused_sgd_({p}, {g}, {buffer}, rule.weight_decay, rule.momentum, rule.lr, 0.0, false, false, steps == 1);
    for (std::size_t i = 0; i < before.parameters.size(); ++i) {
      // Twice the bounds of SgdEqualsItsFormulas.
      const double size = std::fabs(rule.momentum * value_of(before.first[i])) + std::fabs(value_of(before.gradients[i])) +
                          std::fabs(rule.weight_decay * value_of(before.parameters[i]));
      const double u = kFp32Rounding * kSecondOrder;
      EXPECT_NEAR(ours.parameters[i], p.const_data_ptr<float>()[i],
                  2 * (u * std::fabs(value_of(before.parameters[i])) + rule.lr * 7 * u * size))
          << i;
      EXPECT_NEAR(ours.first[i], buffer.const_data_ptr<float>()[i], 2 * 4 * u * size) << i;
    }
  }
}

TEST(UpdateOfOtherTypes, IsRefused) {
  const UpdateState state = state_of(1, 0.9, 0.999);
  EXPECT_THROW(adamw_update({.parameters_type = base::DType::fp64}, {}, {}, &state), base::InvariantError);
  float copy = 0;
  EXPECT_THROW(adamw_update({.working = &copy, .working_type = base::DType::int64}, {}, {}, &state), base::InvariantError);
  EXPECT_THROW(sgd_update({.count = 1}, nullptr, base::DType::fp32, {.momentum = 0.9}, &state), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::kernels
