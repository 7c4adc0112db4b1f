#pragma once
// What launches of kernels over flat memory share: grids, access by 16 bytes where all buffers allow it, and the check of a
// launch. A launch only enqueues.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.hpp"

namespace shardmark::kernels {

inline constexpr int kThreads = 256;
inline constexpr std::int64_t kMaxBlocks = 4096;  // a grid-stride loop does the rest

/// Blocks of a grid-stride loop over `items`; it depends on them alone, so equal calls make equal grids on every device.
inline unsigned blocks_for(std::int64_t items, std::int64_t most = kMaxBlocks) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, most));
}

inline void check_launch(const char* name) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw base::Error(base::ExitCode::failed, std::string(name) + ": kernel launch failed: " + cudaGetErrorName(error) + ": " +
                                                  cudaGetErrorString(error));
  }
}

inline __device__ std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline __device__ std::int64_t item_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// N elements that are loaded and stored together.
template <typename T, int N>
struct alignas(std::min<std::size_t>(16, N * sizeof(T))) Pack {
  T values[N];
};

template <int N, typename T>
__device__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ void store_pack(T* into, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(into) = pack;
}

/// How elements [0, count) are covered: `head` single ones, `groups` of N, and single ones for the rest.
struct Split {
  std::int64_t head = 0;
  std::int64_t groups = 0;
  std::int64_t singles = 0;  // before and behind the groups
};

/// Where a buffer starts, and the size of its elements.
struct Start {
  const void* data = nullptr;  // nullptr: no buffer
  std::size_t element_bytes = 0;
};

/// The cover with packs of N elements, if all buffers have aligned packs at the same elements; else single elements only.
template <int N>
Split split_of(std::int64_t count, std::initializer_list<Start> starts) {
  for (std::int64_t head = 0; head < N && count - head >= N; ++head) {
    const bool aligned = std::all_of(starts.begin(), starts.end(), [&](const Start& start) {
      const std::size_t needed = std::min<std::size_t>(16, N * start.element_bytes);
      return start.data == nullptr ||
             (reinterpret_cast<std::uintptr_t>(start.data) + static_cast<std::size_t>(head) * start.element_bytes) % needed ==
                 0;
    });
    if (aligned) {
      const std::int64_t groups = (count - head) / N;
      return {head, groups, count - groups * N};
    }
  }
  return {0, 0, count};
}

/// Calls group(i) for the first element of each group of N and single(i) for every other element, by all threads of the grid.
template <int N, typename Group, typename Single>
__device__ void for_each_in_split(const Split& split, Group&& group, Single&& single) {
  for (std::int64_t g = first_item(); g < split.groups; g += item_stride()) {
    group(split.head + g * N);
  }
  for (std::int64_t s = first_item(); s < split.singles; s += item_stride()) {
    single(s < split.head ? s : s + split.groups * N);
  }
}

inline unsigned blocks_for(const Split& split) {
  return blocks_for(std::max(split.groups, split.singles));
}

}  // namespace shardmark::kernels
