#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/launch.cuh"
#include "kernels/tree_sum.hpp"
#include "kernels/tree_sum_core.hpp"

namespace shardmark::kernels {
namespace {

struct Sources {
  const void* pointers[kMaxDeviceSources];
};

/// N sources known at compile time; N = 0: more than a leaf. Out is T, or the accumulator's type: not rounded then.
template <typename Op, typename T, int N, typename Out>
__global__ void tree_kernel(Sources sources, int num_sources, Out* out, std::int64_t count) {
  const auto* const* typed = reinterpret_cast<const T* const*>(sources.pointers);
  for (std::int64_t i = first_item(); i < count; i += item_stride()) {
    typename Element<T>::Accumulator sum;
    if constexpr (N > 0) {
      sum = tree_element<Op, T, 0, N>(typed, i);
    } else {
      sum = large_tree_element<Op, T>(typed, num_sources, i);
    }
    if constexpr (std::is_same_v<Out, T>) {
      out[i] = Element<T>::round(sum);
    } else {
      out[i] = sum;
    }
  }
}

template <typename Op, typename T, typename Out = T>
void launch(const Sources& sources, int num_sources, void* out, std::int64_t count, cudaStream_t stream) {
  const unsigned blocks = blocks_for(count);
  auto* target = static_cast<Out*>(out);
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

template <typename T>
void launch_operation(const Sources& sources, int num_sources, void* out, std::int64_t count, TreeOperation operation,
                      cudaStream_t stream) {
  switch (operation) {
    case TreeOperation::sum: return launch<Add, T>(sources, num_sources, out, count, stream);
    case TreeOperation::max: return launch<Max, T>(sources, num_sources, out, count, stream);
    case TreeOperation::min: return launch<Min, T>(sources, num_sources, out, count, stream);
  }
}

Sources checked_sources(const void* const* sources, int num_sources) {
  SM_CHECK(
      num_sources > 0 && num_sources <= kMaxDeviceSources,
      "a device reduction takes 1 to " + std::to_string(kMaxDeviceSources) + " sources, not " + std::to_string(num_sources));
  Sources list{};
  for (int s = 0; s < num_sources; ++s) {
    list.pointers[s] = sources[s];
  }
  return list;
}

}  // namespace

void tree_reduce_device(const void* const* sources, int num_sources, void* out, std::int64_t count, base::DType dtype,
                        TreeOperation operation, void* stream) {
  const Sources list = checked_sources(sources, num_sources);
  if (count == 0) {
    return;
  }
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  switch (dtype) {
    case base::DType::fp32: launch_operation<float>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::bf16: launch_operation<Bf16>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::fp64: launch_operation<double>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::int64: launch_operation<std::int64_t>(list, num_sources, out, count, operation, cuda_stream); break;
    case base::DType::uint8: launch_operation<std::uint8_t>(list, num_sources, out, count, operation, cuda_stream); break;
  }
  check_launch("tree_reduce_device");
}

void tree_sum_widened_device(const void* const* sources, int num_sources, float* out, std::int64_t count, void* stream) {
  const Sources list = checked_sources(sources, num_sources);
  if (count == 0) {
    return;
  }
  launch<Add, Bf16, float>(list, num_sources, out, count, static_cast<cudaStream_t>(stream));
  check_launch("tree_sum_widened_device");
}

}  // namespace shardmark::kernels
