#pragma once
// Whole ranges between fp32 and bf16 in host memory. Widening is exact; rounding is to nearest even, NaN stays NaN.

#include <cstddef>

#include "kernels/element.hpp"

namespace shardmark::kernels {

/// `count` elements; the ranges do not overlap.
void convert(float* into, const Bf16* from, std::size_t count);
void convert(Bf16* into, const float* from, std::size_t count);

}  // namespace shardmark::kernels
