#pragma once
// Boxes as (x1, y1, x2, y2) in pixels, and the code by which a detector predicts them relative to anchors.
// Letters: B boxes, G true boxes, A anchors.

#include <torch/torch.h>

#include <cstdint>

namespace shardmark::detection {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// Intersection over union of every pair, (G, A). Boxes without area overlap nothing.
[[nodiscard]] torch::Tensor intersection_over_union(const torch::Tensor& boxes_G4, const torch::Tensor& anchors_A4);

/// Coordinates moved into the image. A box outside it keeps no area and stays.
[[nodiscard]] torch::Tensor clip_boxes(const torch::Tensor& boxes_B4, ImageSize size);

/// Centre offsets in units of the anchor and logarithms of the ratios of sides, all weights 1.
[[nodiscard]] torch::Tensor encode_boxes(const torch::Tensor& boxes_B4, const torch::Tensor& anchors_B4);

/// The inverse; log ratios are cut at ln(1000 / 16), so that no box becomes infinite.
[[nodiscard]] torch::Tensor decode_boxes(const torch::Tensor& deltas_B4, const torch::Tensor& anchors_B4);

}  // namespace shardmark::detection
