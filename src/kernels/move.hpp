#pragma once
// Copies and sums between flat buffers with a scale and a change of type: gradients into buckets and back. The host function
// takes host memory, the device function device memory; both give the same bits, but for which NaN a NaN is.

#include <cstdint>

#include "base/dtype.hpp"

namespace shardmark::kernels {

struct Move {
  void* into = nullptr;
  base::DType into_type = base::DType::fp32;  // fp32 or bf16
  const void* from = nullptr;                 // does not overlap `into`
  base::DType from_type = base::DType::fp32;  // fp32 or bf16
  std::int64_t count = 0;
  float scale = 1;
  bool add = false;                    // to what is there, which is fp32; otherwise it is replaced
  std::int32_t* not_finite = nullptr;  // set to 1 if a value of `from` is not finite, else left alone; nullptr: nobody asks
};

/// Widened exactly, scaled and added in fp32, rounded to nearest even once. A scale of 1 changes nothing: same types keep all
/// bits.
void move_scaled(const Move& move);

#ifdef SM_WITH_CUDA
/// Enqueues on `stream` (a cudaStream_t) and returns; `not_finite` is device memory. Throws base::Error if the launch fails.
void move_scaled_device(const Move& move, void* stream);
#endif

}  // namespace shardmark::kernels
