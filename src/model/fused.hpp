#pragma once
// Operations of language models that LibTorch runs as chains of element-wise passes, as one pass each with its gradient. On the
// CPU by the loops of `kernels`; on devices that have no such kernel by the chains, which are also what tests compare with.
// Letters: N rows, T positions, H heads, D width of a head.

#include <torch/torch.h>

namespace shardmark::model {

/// round(x / sqrt(mean(x^2) + epsilon)) weight over the last dimension, statistics in fp32; x and weight of one type (fp32 or
/// bf16).
[[nodiscard]] torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);

/// Turns the first half of each head against the second, in fp32. Tables: fp32, (T, D), or (N, 1, T, D) where rows have
/// segments, their second half equal to the first.
[[nodiscard]] torch::Tensor rotate(const torch::Tensor& x_NTHD, const torch::Tensor& cos_TD, const torch::Tensor& sin_TD);

/// silu(gate) up, element by element.
[[nodiscard]] torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

/// The same as chains of LibTorch's operations.
[[nodiscard]] torch::Tensor rms_norm_chain(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);
[[nodiscard]] torch::Tensor rotate_chain(const torch::Tensor& x_NTHD, const torch::Tensor& cos_TD, const torch::Tensor& sin_TD);
[[nodiscard]] torch::Tensor swiglu_chain(const torch::Tensor& gate, const torch::Tensor& up);

}  // namespace shardmark::model
