#include "detection/matcher.hpp"

#include "detection/boxes.hpp"

namespace shardmark::detection {

torch::Tensor match_anchors(const torch::Tensor& boxes_G4, const torch::Tensor& anchors_A4) {
  constexpr double kObject = 0.5;
  constexpr double kBackgroundBelow = 0.4;
  if (boxes_G4.size(0) == 0) {
    return at::full({anchors_A4.size(0)}, kBackground, anchors_A4.options().dtype(at::kLong));
  }
  const torch::Tensor overlap_GA = intersection_over_union(boxes_G4, anchors_A4);
  const auto [best_A, own_A] = at::max(overlap_GA, 0);
  const torch::Tensor matched_A = at::where(best_A < kBackgroundBelow, at::full_like(own_A, kBackground),
                                            at::where(best_A < kObject, at::full_like(own_A, kBetween), own_A));
  const torch::Tensor reaches_A = (overlap_GA == std::get<0>(at::max(overlap_GA, 1, /*keepdim=*/true))).any(0);
  return at::where(reaches_A, own_A, matched_A);
}

}  // namespace shardmark::detection
