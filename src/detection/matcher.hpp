#pragma once
// Which anchor answers for which true box.

#include <torch/torch.h>

namespace shardmark::detection {

inline constexpr std::int64_t kBackground = -1;
inline constexpr std::int64_t kBetween = -2;  // neither background nor object: counts nowhere

/// (A) int64: the index of the box that an anchor answers for, kBackground or kBetween. An anchor's best box (the first of
/// equals) counts from an overlap of 0.5 on, below 0.4 the anchor is background. Then every anchor that reaches the largest
/// overlap of some box, ties too, is given back ITS OWN best box, which need not be that box. So a box that overlaps no anchor
/// at all, its largest overlap being 0, turns every anchor that it misses into an object; the public implementation does so.
[[nodiscard]] torch::Tensor match_anchors(const torch::Tensor& boxes_G4, const torch::Tensor& anchors_A4);

}  // namespace shardmark::detection
