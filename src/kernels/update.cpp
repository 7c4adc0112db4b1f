#include "kernels/update.hpp"

#include "kernels/float_types.hpp"
#include "kernels/update_core.hpp"

namespace shardmark::kernels {
namespace {

/// The new parameter to where it rests and, from there, to its working copy.
template <typename P>
void store(const UpdateRange& range, std::int64_t i, float parameter) {
  const P resting = Element<P>::round(parameter);
  static_cast<P*>(range.parameters)[i] = resting;
  if (range.working == nullptr) {
    return;
  }
  if (range.working_type == base::DType::fp32) {
    static_cast<float*>(range.working)[i] = Element<P>::widen(resting);
  } else {
    static_cast<Bf16*>(range.working)[i] = Element<Bf16>::round(Element<P>::widen(resting));
  }
}

template <typename P, typename G>
void load(const UpdateRange& range, std::int64_t i, float& parameter, float& gradient) {
  parameter = Element<P>::widen(static_cast<const P*>(range.parameters)[i]);
  gradient = Element<G>::widen(static_cast<const G*>(range.gradients)[i]);
}

template <typename P, typename G, typename S>
void adamw_typed(const UpdateRange& range, const AdamMoments& moments, const AdamFactors& factors) {
  auto* first = static_cast<S*>(moments.first);
  auto* second = static_cast<S*>(moments.second);
  for (std::int64_t i = 0; i < range.count; ++i) {
    float parameter = 0;
    float gradient = 0;
    load<P, G>(range, i, parameter, gradient);
    float m = Element<S>::widen(first[i]);
    float v = Element<S>::widen(second[i]);
    adam_element(factors, parameter, gradient, m, v);
    first[i] = Element<S>::round(m);
    second[i] = Element<S>::round(v);
    store<P>(range, i, parameter);
  }
}

template <typename P, typename G, typename S>
void sgd_typed(const UpdateRange& range, S* momentum, const SgdFactors& factors) {
  for (std::int64_t i = 0; i < range.count; ++i) {
    float parameter = 0;
    float gradient = 0;
    load<P, G>(range, i, parameter, gradient);
    float m = factors.momentum != 0 ? Element<S>::widen(momentum[i]) : 0;
    sgd_element(factors, parameter, gradient, m);
    if (factors.momentum != 0) {
      momentum[i] = Element<S>::round(m);
    }
    store<P>(range, i, parameter);
  }
}

}  // namespace

void adamw_update(const UpdateRange& range, const AdamMoments& moments, const AdamRule& rule, const UpdateState* state) {
  if (state->applies == 0) {
    return;
  }
  const AdamFactors factors = adam_factors(rule, *state);
  with_update_types(range, moments.type, [&](auto p, auto g, auto s) {
    adamw_typed<decltype(p), decltype(g), decltype(s)>(range, moments, factors);
  });
}

void sgd_update(const UpdateRange& range, void* momentum, base::DType momentum_type, const SgdRule& rule,
                const UpdateState* state) {
  SM_CHECK(momentum != nullptr || rule.momentum == 0 || range.count == 0, "SGD with momentum needs a buffer for it");
  if (state->applies == 0) {
    return;
  }
  const SgdFactors factors = sgd_factors(rule, *state);
  with_update_types(range, momentum_type, [&](auto p, auto g, auto s) {
    sgd_typed<decltype(p), decltype(g)>(range, static_cast<decltype(s)*>(momentum), factors);
  });
}

}  // namespace shardmark::kernels
