#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "kernels/tree_sum.hpp"
#include "kernels/tree_sum_core.hpp"

namespace shardmark::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 4096;  // a grid-stride loop does the rest

struct Sources {
  const void* pointers[kMaxDeviceSources];
};

/// Element i of a tree with more sources than a leaf. Full leaves are perfect subtrees, so they merge like the carries of
/// a binary counter; what is left on the stack folds from the right, which is the tree's shape.
template <typename Op, typename T>
__device__ typename Element<T>::Accumulator large_tree_element(const T* const* sources, int num_sources, std::int64_t i) {
  typename Element<T>::Accumulator stack[8];  // 256 sources: at most 32 leaves, 6 levels, and a rest
  int depth = 0;
  int leaf = 0;
  for (; (leaf + 1) * kTreeLeaf <= num_sources; ++leaf) {
    auto value = tree_element<Op, T, 0, kTreeLeaf>(sources + leaf * kTreeLeaf, i);
    for (int carry = leaf; (carry & 1) != 0; carry >>= 1) {
      value = Op::combine(stack[--depth], value);
    }
    stack[depth++] = value;
  }
  const T* const* rest = sources + leaf * kTreeLeaf;
  switch (num_sources - leaf * kTreeLeaf) {
    case 1: stack[depth++] = tree_element<Op, T, 0, 1>(rest, i); break;
    case 2: stack[depth++] = tree_element<Op, T, 0, 2>(rest, i); break;
    case 3: stack[depth++] = tree_element<Op, T, 0, 3>(rest, i); break;
    case 4: stack[depth++] = tree_element<Op, T, 0, 4>(rest, i); break;
    case 5: stack[depth++] = tree_element<Op, T, 0, 5>(rest, i); break;
    case 6: stack[depth++] = tree_element<Op, T, 0, 6>(rest, i); break;
    case 7: stack[depth++] = tree_element<Op, T, 0, 7>(rest, i); break;
    default: break;
  }
  auto value = stack[--depth];
  while (depth > 0) {
    value = Op::combine(stack[--depth], value);
  }
  return value;
}

/// N sources known at compile time; N = 0: more than a leaf.
template <typename Op, typename T, int N>
__global__ void tree_kernel(Sources sources, int num_sources, T* out, std::int64_t count) {
  const auto* const* typed = reinterpret_cast<const T* const*>(sources.pointers);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    if constexpr (N > 0) {
      out[i] = Element<T>::round(tree_element<Op, T, 0, N>(typed, i));
    } else {
      out[i] = Element<T>::round(large_tree_element<Op, T>(typed, num_sources, i));
    }
  }
}

template <typename Op, typename T>
void launch(const Sources& sources, int num_sources, void* out, std::int64_t count, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (count + kThreads - 1) / kThreads));
  T* target = static_cast<T*>(out);
  switch (num_sources) {
    case 1: tree_kernel<Op, T, 1><<<blocks, kThreads, 0, stream>>>(sources, 1, target, count); break;
    case 2: tree_kernel<Op, T, 2><<<blocks, kThreads, 0, stream>>>(sources, 2, target, count); break;
    case 3: tree_kernel<Op, T, 3><<<blocks, kThreads, 0, stream>>>(sources, 3, target, count); break;
    case 4: tree_kernel<Op, T, 4><<<blocks, kThreads, 0, stream>>>(sources, 4, target, count); break;
    case 5: tree_kernel<Op, T, 5><<<blocks, kThreads, 0, stream>>>(sources, 5, target, count); break;
    case 6: tree_kernel<Op, T, 6><<<blocks, kThreads, 0, stream>>>(sources, 6, target, count); break;
    case 7: tree_kernel<Op, T, 7><<<blocks, kThreads, 0, stream>>>(sources, 7, target, count); break;
    case 8: tree_kernel<Op, T, 8><<<blocks, kThreads, 0, stream>>>(sources, 8, target, count); break;
    default: tree_kernel<Op, T, 0><<<blocks, kThreads, 0, stream>>>(sources, num_sources, target, count); break;
  }
}

/// As tree_kernel, of bf16 without the last rounding.
__global__ void widened_kernel(Sources sources, int num_sources, float* out, std::int64_t count) {
  const auto* const* typed = reinterpret_cast<const Bf16* const*>(sources.pointers);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    out[i] = large_tree_element<Add, Bf16>(typed, num_sources, i);
  }
}

template <typename T>
void launch_operation(const Sources& sources, int num_sources, void* out, std::int64_t count, TreeOperation operation,
                      cudaStream_t stream) {
  switch (operation) {
    case TreeOperation::sum: return launch<Add, T>(sources, num_sources, out, count, stream);
    case TreeOperation::max: return launch<Max, T>(sources, num_sources, out, count, stream);
    case TreeOperation::min: return launch<Min, T>(sources, num_sources, out, count, stream);
  }
}

}  // namespace

void tree_reduce_device(const void* const* sources, int num_sources, void* out, std::int64_t count, base::DType dtype,
                        TreeOperation operation, void* stream) {
  SM_CHECK(
      num_sources > 0 && num_sources <= kMaxDeviceSources,
      "a device reduction takes 1 to " + std::to_string(kMaxDeviceSources) + " sources, not " + std::to_string(num_sources));
  if (count == 0) {
    return;
  }
  Sources list{};
  for (int s = 0; s < num_sources; ++s) {
    list.pointers[s] = sources[s];
  }
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  switch (dtype) {
    case base::DType::fp32: launch_operation<float>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::bf16: launch_operation<Bf16>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::fp64: launch_operation<double>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::int64: launch_operation<std::int64_t>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::uint8: launch_operation<std::uint8_t>(list, num_sources, out, count, operation, cuda_stream); break;
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw base::Error(base::ExitCode::failed, std::string("tree_reduce_device: kernel launch failed: ") +
                                                  cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
}

void tree_sum_widened_device(const void* const* sources, int num_sources, float* out, std::int64_t count, void* stream) {
  SM_CHECK(
      num_sources > 0 && num_sources <= kMaxDeviceSources,
      "a device reduction takes 1 to " + std::to_string(kMaxDeviceSources) + " sources, not " + std::to_string(num_sources));
  if (count == 0) {
    return;
  }
  Sources list{};
  for (int s = 0; s < num_sources; ++s) {
    list.pointers[s] = sources[s];
  }
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (count + kThreads - 1) / kThreads));
  widened_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(list, num_sources, out, count);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw base::Error(base::ExitCode::failed, std::string("tree_sum_widened_device: kernel launch failed: ") +
                                                  cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
}

}  // namespace shardmark::kernels
