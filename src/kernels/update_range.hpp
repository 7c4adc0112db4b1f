#pragma once
// What an update of parameters reads and writes beside its states: flat memory of one rank.

#include <cstdint>

#include "base/dtype.hpp"

namespace shardmark::kernels {

/// `count` elements that are updated alike. All types are fp32 or bf16; arithmetic is fp32, and what rests in bf16 is rounded
/// to nearest even once an update. Buffers do not overlap.
struct UpdateRange {
  void* parameters = nullptr;
  base::DType parameters_type = base::DType::fp32;
  const void* gradients = nullptr;
  base::DType gradients_type = base::DType::fp32;
  /// Given: gets a copy of the new parameters, as they rest, in the type that the model computes in.
  void* working = nullptr;
  base::DType working_type = base::DType::bf16;
  std::int64_t count = 0;
};

}  // namespace shardmark::kernels
