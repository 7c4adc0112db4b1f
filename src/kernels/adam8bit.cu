#include "kernels/adam8bit.hpp"
#include "kernels/adam8bit_core.hpp"
#include "kernels/float_types.hpp"
#include "kernels/update.cuh"

namespace shardmark::kernels {
namespace {

// A warp updates a block of 256: each of its lanes 8 elements side by side.
constexpr int kWarp = 32;
constexpr int kEach = kAdam8bitBlock / kWarp;
constexpr unsigned kWholeWarp = 0xffffffffU;

template <typename T>
__device__ void load_each(const T* from, bool aligned, float (&into)[kEach]) {
  if (aligned) {
    widen_pack(from, into);
    return;
  }
  for (int k = 0; k < kEach; ++k) {
    into[k] = Element<T>::widen(from[k]);
  }
}

template <typename P>
__device__ void store_each(const UpdateRange& range, std::int64_t i, bool aligned, float (&values)[kEach]) {
  if (aligned) {
    store_parameters<kEach, P>(range, i, values);
    return;
  }
  for (int k = 0; k < kEach; ++k) {
    float one[1] = {values[k]};
    store_parameters<1, P>(range, i + k, one);
  }
}

/// The scale of a block whose lanes hold these values.
__device__ float scale_of_block(const float (&values)[kEach]) {
  std::uint32_t most = 0;
  for (const float value : values) {
    const std::uint32_t bits = bits_of(value) & 0x7fffffffU;
    most = bits > most ? bits : most;
  }
  return scale_of(float_of(__reduce_max_sync(kWholeWarp, most)));
}

template <typename P, typename G>
__global__ void adam8bit_kernel(UpdateRange range, Adam8bitMoments moments, Adam8bitStep rule, const UpdateState* state,
                                bool aligned) {
  if (state->applies == 0) {
    return;
  }
  __shared__ Adam8bitFactors factors;
  if (threadIdx.x == 0) {
    factors = adam8bit_factors(rule, *state);
  }
  __syncthreads();
  const std::int64_t lane = threadIdx.x % kWarp;
  for (std::int64_t block = first_item() / kWarp; block < range.count / kAdam8bitBlock; block += item_stride() / kWarp) {
    const std::int64_t i = block * kAdam8bitBlock + lane * kEach;
    float parameters[kEach];
    float gradients[kEach];
    float first[kEach];
    float second[kEach];
    load_each(static_cast<const P*>(range.parameters) + i, aligned, parameters);
    load_each(static_cast<const G*>(range.gradients) + i, aligned, gradients);
    auto first_codes = load_pack<kEach>(moments.first + i);
    auto second_codes = load_pack<kEach>(moments.second + i);
    const float first_before = moments.first_scale[block];
    const float second_before = moments.second_scale[block];
    for (int k = 0; k < kEach; ++k) {
      first[k] = decode_first(first_codes.values[k], first_before);
      second[k] = decode_second(second_codes.values[k], second_before);
      step_element(factors, parameters[k], gradients[k], first[k], second[k]);
    }
    // All lanes have read the scales when the reductions return.
    const float first_scale = scale_of_block(first);
    const float second_scale = scale_of_block(second);
    const float first_inverse = inverse_of(first_scale);
    const float second_inverse = inverse_of(second_scale);
    for (int k = 0; k < kEach; ++k) {
      first_codes.values[k] = encode_first(first[k], first_inverse, factors.salt);
      second_codes.values[k] = encode_second(second[k], second_inverse, factors.salt);
    }
    store_pack(moments.first + i, first_codes);
    store_pack(moments.second + i, second_codes);
    if (lane == 0) {
      moments.first_scale[block] = first_scale;
      moments.second_scale[block] = second_scale;
    }
    store_each<P>(range, i, aligned, parameters);
  }
}

}  // namespace

void adam8bit_update_device(const UpdateRange& range, const Adam8bitMoments& moments, const Adam8bitStep& rule,
                            const UpdateState* state, void* stream) {
  SM_CHECK(range.count % kAdam8bitBlock == 0, "8-bit moments come in whole blocks");
  SM_CHECK(reinterpret_cast<std::uintptr_t>(moments.first) % kEach == 0 &&
               reinterpret_cast<std::uintptr_t>(moments.second) % kEach == 0,
           "8-bit codes start at multiples of 8 bytes");
  if (range.count == 0) {
    return;
  }
  with_range_types(range, [&](auto p, auto g) {
    using P = decltype(p);
    using G = decltype(g);
    const Split split = split_of<kEach>(
        range.count, {start_of(range.parameters, range.parameters_type), start_of(range.gradients, range.gradients_type),
                      start_of(range.working, range.working_type)});
    const bool aligned = split.head == 0 && split.groups > 0;
    adam8bit_kernel<P, G><<<blocks_for(range.count / kEach), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        range, moments, rule, state, aligned);
  });
  check_launch("adam8bit_update_device");
}

}  // namespace shardmark::kernels
