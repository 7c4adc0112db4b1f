#pragma once
// How well scores sort positive rows above negative ones.

#include <span>

namespace shardmark::model {

/// Area under the curve of true over false positives: the share of (positive, negative) pairs whose positive has the higher
/// score, ties counting half. Exact whole numbers until one division, in any order of rows. A row is positive from a label of
/// 0.5 on. NaN without both kinds, or if a score is NaN.
[[nodiscard]] double auroc(std::span<const double> scores, std::span<const float> labels);

}  // namespace shardmark::model
