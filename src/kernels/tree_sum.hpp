#pragma once
// Element-wise reductions over the buffers of several ranks along one fixed binary tree: equal inputs give equal bits
// whatever splits the buffers, on the host and on the device. Knows nothing of ranks or messages.

#include <cstdint>

#include "base/dtype.hpp"

namespace shardmark::kernels {

enum class TreeOperation : std::uint8_t { sum, max, min };

/// `count` elements of each of `num_sources` host buffers, in rank order, into `out`. bf16 is added in fp32 and rounded to
/// nearest even once; fp32, fp64 and int64 are added in their own type; uint8 sums wrap. max and min keep a NaN.
/// `out` may be one of the sources; otherwise buffers must not overlap. Does not allocate.
void tree_reduce(const void* const* sources, int num_sources, void* out, std::int64_t count, base::DType dtype,
                 TreeOperation operation);

/// The sum of bf16 host buffers as it is before rounding, in fp32: for a tree whose next level lies elsewhere. `out` overlaps
/// no source. Does not allocate.
void tree_sum_widened(const void* const* sources, int num_sources, float* out, std::int64_t count);

#ifdef SM_WITH_CUDA
/// The most sources one launch takes.
inline constexpr int kMaxDeviceSources = 256;

/// As `tree_reduce`, bit for bit, for device buffers; `sources` itself is a host array. Enqueues on `stream` (a
/// cudaStream_t) and returns. Throws base::Error if the launch fails or there are too many sources.
void tree_reduce_device(const void* const* sources, int num_sources, void* out, std::int64_t count, base::DType dtype,
                        TreeOperation operation, void* stream);

/// As `tree_sum_widened`, likewise.
void tree_sum_widened_device(const void* const* sources, int num_sources, float* out, std::int64_t count, void* stream);
#endif

}  // namespace shardmark::kernels
