#pragma once
// Between flat tensors and what a communicator takes.

#include <torch/torch.h>

#include <cstring>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace shardmark::parallel {

[[nodiscard]] inline base::DType dtype_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return base::DType::fp32;
    case at::kBFloat16: return base::DType::bf16;
    case at::kLong: return base::DType::int64;
    case at::kDouble: return base::DType::fp64;
    case at::kByte: return base::DType::uint8;
    default: break;
  }
  throw base::InvariantError("a tensor's type is none that a communicator carries");
}

/// The whole memory of a contiguous tensor; the tensor must stay alive until the collective is complete.
[[nodiscard]] inline comm::Buffer comm_buffer(const torch::Tensor& flat) {
  SM_DCHECK(flat.is_contiguous(), "a communicator takes contiguous memory");
  return {flat.data_ptr(), flat.numel(), dtype_of(flat)};
}

/// Copies element by element: the same bits between equal types, else rounded to nearest even.
inline void copy_bits_or_convert(const torch::Tensor& into, const torch::Tensor& from) {
  if (into.scalar_type() == from.scalar_type() && into.is_cpu() && from.is_cpu()) {
    std::memcpy(into.data_ptr(), from.data_ptr(), from.nbytes());
  } else {
    const torch::NoGradGuard no_grad;
    into.copy_(from);
  }
}

}  // namespace shardmark::parallel
