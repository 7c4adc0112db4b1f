#pragma once
// Sums of squares and largest magnitudes of gradients, gathered into a step's scalars. The host functions take host memory, the
// device functions device memory; both give the same bits. Knows nothing of ranks.
//
// Between steps `squares`, `exact_squares` and `largest` are set to zero (all bits). Several calls accumulate, in order; the
// types are fp32 and bf16, which is widened exactly.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/step_scalars.hpp"

namespace shardmark::kernels {

/// Adds the sum of squares to `squares`, in double and in an order that depends on `count` alone. NaN or Inf in, NaN or Inf
/// out.
void sum_of_squares(const void* values, base::DType type, std::int64_t count, StepScalars* scalars);

/// Raises `largest` to the largest magnitude. Compared as unsigned integers, as which magnitudes order as they do as numbers,
/// and any NaN is largest. Over ranks it must be reduced in a way that keeps NaN, which NCCL's maximum of floats does not
/// promise: a maximum of the same bits as integers does.
void largest_magnitude(const void* values, base::DType type, std::int64_t count, StepScalars* scalars);

/// Adds the squares, scaled by a power of two that follows from `largest` and rounded to integers, to `exact_squares`: neither
/// the order nor the spread over ranks matters (see optim::exact_sum_of_squares, which gives the same). `largest` is that of
/// all ranks; if it is not finite, nothing is added.
void exact_sum_of_squares(const void* values, base::DType type, std::int64_t count, StepScalars* scalars);

#ifdef SM_WITH_CUDA
/// Bytes of device memory that sum_of_squares_device is lent until the stream has passed it; aligned to 8.
[[nodiscard]] std::int64_t sum_of_squares_scratch_bytes();

/// These enqueue on `stream` (a cudaStream_t) and return. They throw base::Error if a launch fails.
void sum_of_squares_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* scratch,
                           void* stream);
void largest_magnitude_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* stream);
void exact_sum_of_squares_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* stream);
#endif

}  // namespace shardmark::kernels
