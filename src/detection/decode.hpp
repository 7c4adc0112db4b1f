#pragma once
// From predictions to detections of one image.

#include <torch/torch.h>

#include <vector>

#include "detection/boxes.hpp"

namespace shardmark::detection {

struct DecodeRule {
  double score_above = 0.05;
  std::int64_t candidates_per_level = 1000;
  double overlap_above = 0.5;  // of a class: the lower score goes
  std::int64_t keep = 300;
};

struct Detections {
  torch::Tensor boxes_B4;
  torch::Tensor scores_B;  // falling
  torch::Tensor labels_B;  // int64
};

/// `anchors_per_level` adds up to A. Boxes are clipped to `size`, the resized image without its padding; those that keep no
/// area stay, as in the public implementation. Host memory.
[[nodiscard]] Detections decode(const torch::Tensor& logits_AK, const torch::Tensor& deltas_A4, const torch::Tensor& anchors_A4,
                                const std::vector<std::int64_t>& anchors_per_level, ImageSize size,
                                const DecodeRule& rule = {});

/// Indices of the boxes that stay, by falling score: each drops the later ones of its class that overlap it by more.
[[nodiscard]] std::vector<std::int64_t> suppress_overlaps(const torch::Tensor& boxes_B4, const torch::Tensor& scores_B,
                                                          const torch::Tensor& labels_B, double overlap_above);

}  // namespace shardmark::detection
