#pragma once
// The head of a language model and its loss as one operation that never holds the logits of all rows at once.
// Letters: R rows (one a position), C width, V vocabulary.

#include <torch/torch.h>

#include <cstdint>

namespace shardmark::model {

/// Label of a row that has no target.
inline constexpr std::int64_t kNoTarget = -100;

/// Sum over the rows that have a target of -log softmax(x W^T)[target], fp32, (). Logits are products in the type of x and W,
/// everything behind them is fp32. Where gradients are on, those of x and W are made in forward, piece by piece, so that logits
/// of `rows_at_once` rows exist at a time and are computed once; the gradient of W is added up in its own type. Backward may
/// run once.
[[nodiscard]] torch::Tensor linear_cross_entropy_sum(const torch::Tensor& x_RC, const torch::Tensor& weight_VC,
                                                     const torch::Tensor& targets_R, std::int64_t rows_at_once);

/// Rows whose fp32 logits fill a piece: few enough to stay near the processor, many enough for fast products.
[[nodiscard]] std::int64_t rows_of_a_piece(const torch::Tensor& weight_VC);

}  // namespace shardmark::model
