#include "kernels/float_types.hpp"
#include "kernels/update.cuh"
#include "kernels/update.hpp"
#include "kernels/update_core.hpp"

namespace shardmark::kernels {
namespace {

/// As many elements as 16 bytes hold of the widest type.
template <typename... T>
inline constexpr int kPack = 16 / std::max({sizeof(T)...});

template <typename P, typename G, typename S>
__global__ void adamw_kernel(UpdateRange range, S* first, S* second, AdamRule rule, const UpdateState* state, Split split) {
  if (state->applies == 0) {
    return;
  }
  __shared__ AdamFactors factors;
  if (threadIdx.x == 0) {
    factors = adam_factors(rule, *state);
  }
  __syncthreads();
  const auto update = [&]<int N>(std::int64_t i) {
    float parameters[N];
    float gradients[N];
    float m[N];
    float v[N];
    widen_pack(static_cast<const P*>(range.parameters) + i, parameters);
    widen_pack(static_cast<const G*>(range.gradients) + i, gradients);
    widen_pack(first + i, m);
    widen_pack(second + i, v);
    for (int k = 0; k < N; ++k) {
      adam_element(factors, parameters[k], gradients[k], m[k], v[k]);
    }
    round_pack(first + i, m);
    round_pack(second + i, v);
    store_parameters<N, P>(range, i, parameters);
  };
  constexpr int kSize = kPack<P, G, S>;
  for_each_in_split<kSize>(
      split, [&](std::int64_t i) { update.template operator()<kSize>(i); },
      [&](std::int64_t i) { update.template operator()<1>(i); });
}

template <typename P, typename G, typename S>
__global__ void sgd_kernel(UpdateRange range, S* momentum, SgdRule rule, const UpdateState* state, Split split) {
  if (state->applies == 0) {
    return;
  }
  __shared__ SgdFactors factors;
  if (threadIdx.x == 0) {
    factors = sgd_factors(rule, *state);
  }
  __syncthreads();
  const auto update = [&]<int N>(std::int64_t i) {
    float parameters[N];
    float gradients[N];
    float m[N] = {};
    widen_pack(static_cast<const P*>(range.parameters) + i, parameters);
    widen_pack(static_cast<const G*>(range.gradients) + i, gradients);
    if (factors.momentum != 0) {
      widen_pack(momentum + i, m);
    }
    for (int k = 0; k < N; ++k) {
      sgd_element(factors, parameters[k], gradients[k], m[k]);
    }
    if (factors.momentum != 0) {
      round_pack(momentum + i, m);
    }
    store_parameters<N, P>(range, i, parameters);
  };
  constexpr int kSize = kPack<P, G, S>;
  for_each_in_split<kSize>(
      split, [&](std::int64_t i) { update.template operator()<kSize>(i); },
      [&](std::int64_t i) { update.template operator()<1>(i); });
}

}  // namespace

void adamw_update_device(const UpdateRange& range, const AdamMoments& moments, const AdamRule& rule, const UpdateState* state,
                         void* stream) {
  if (range.count == 0) {
    return;
  }
  with_update_types(range, moments.type, [&](auto p, auto g, auto s) {
    using P = decltype(p);
    using G = decltype(g);
    using S = decltype(s);
    const Split split = split_of<kPack<P, G, S>>(
        range.count, {start_of(range.parameters, range.parameters_type), start_of(range.gradients, range.gradients_type),
                      start_of(range.working, range.working_type), start_of(moments.first, moments.type),
                      start_of(moments.second, moments.type)});
    adamw_kernel<P, G, S><<<blocks_for(split), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        range, static_cast<S*>(moments.first), static_cast<S*>(moments.second), rule, state, split);
  });
  check_launch("adamw_update_device");
}

void sgd_update_device(const UpdateRange& range, void* momentum, base::DType momentum_type, const SgdRule& rule,
                       const UpdateState* state, void* stream) {
  SM_CHECK(momentum != nullptr || rule.momentum == 0 || range.count == 0, "SGD with momentum needs a buffer for it");
  if (range.count == 0) {
    return;
  }
  with_update_types(range, momentum_type, [&](auto p, auto g, auto s) {
    using P = decltype(p);
    using G = decltype(g);
    using S = decltype(s);
    const Split split = split_of<kPack<P, G, S>>(
        range.count, {start_of(range.parameters, range.parameters_type), start_of(range.gradients, range.gradients_type),
                      start_of(range.working, range.working_type), start_of(momentum, momentum_type)});
    sgd_kernel<P, G, S><<<blocks_for(split), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(range, static_cast<S*>(momentum),
                                                                                               rule, state, split);
  });
  check_launch("sgd_update_device");
}

}  // namespace shardmark::kernels
