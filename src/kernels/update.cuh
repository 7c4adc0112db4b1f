#pragma once
// Access of device kernels to what an update reads and writes, by packs of N elements.

#include "kernels/element.hpp"
#include "kernels/launch.cuh"
#include "kernels/update_range.hpp"

namespace shardmark::kernels {

template <int N, typename T>
__device__ void widen_pack(const T* from, float (&into)[N]) {
  const auto pack = load_pack<N>(from);
  for (int k = 0; k < N; ++k) {
    into[k] = Element<T>::widen(pack.values[k]);
  }
}

template <int N, typename T>
__device__ void round_pack(T* into, const float (&from)[N]) {
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) {
    pack.values[k] = Element<T>::round(from[k]);
  }
  store_pack(into, pack);
}

/// Stores new parameters to where they rest and, as they rest, to their working copy.
template <int N, typename P>
__device__ void store_parameters(const UpdateRange& range, std::int64_t i, float (&values)[N]) {
  round_pack(static_cast<P*>(range.parameters) + i, values);
  if (range.working == nullptr) {
    return;
  }
  for (float& value : values) {
    value = Element<P>::widen(Element<P>::round(value));
  }
  if (range.working_type == base::DType::fp32) {
    round_pack(static_cast<float*>(range.working) + i, values);
  } else {
    round_pack(static_cast<Bf16*>(range.working) + i, values);
  }
}

inline Start start_of(const void* data, base::DType type) {
  return {data, base::size_of(type)};
}

}  // namespace shardmark::kernels
