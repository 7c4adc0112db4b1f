#pragma once
// What a detector is trained for: focal loss of classes over all anchors, GIoU or L1 loss of boxes over those with an object.
// Losses are per image; nothing here knows how many images the whole batch has.
// Letters: N images, A anchors, K classes, P anchors with an object over all images.

#include <torch/torch.h>

#include <vector>

#include "detection/boxes.hpp"

namespace shardmark::detection {

enum class BoxLoss : std::uint8_t { giou, l1 };

/// Boxes and labels of one image, in pixels of the resized image.
struct Truth {
  torch::Tensor boxes_G4;
  torch::Tensor labels_G;  // int64
};

/// What the losses need of a batch, without the predictions: made ahead of the pass, in host memory.
struct Targets {
  torch::Tensor classes_NA;   // int64: the wanted class, kBackground or kBetween
  torch::Tensor positives_P;  // int64: index n x A + a of each anchor with an object
  torch::Tensor images_P;     // int64: its image
  torch::Tensor anchors_P4;
  torch::Tensor boxes_P4;
  torch::Tensor scale_N;  // 1 / max(1, objects' anchors); 0 for images that count nothing
};

/// The first `counted` images count, the others are fillers.
[[nodiscard]] Targets make_targets(const std::vector<Truth>& truths, const torch::Tensor& anchors_A4, std::int64_t counted);

/// (N): sigmoid focal loss, alpha 0.25, gamma 2, summed over anchors (but those between) and classes, times scale_N.
[[nodiscard]] torch::Tensor focal_loss(const torch::Tensor& logits_NAK, const Targets& targets);

/// (N): summed over anchors with an object, times scale_N.
[[nodiscard]] torch::Tensor box_loss(const torch::Tensor& deltas_NA4, const Targets& targets, BoxLoss kind);

/// (B): 1 - IoU + (enclosing - union) / enclosing, with 1e-7 added to both divisors.
[[nodiscard]] torch::Tensor generalized_iou_loss(const torch::Tensor& boxes_B4, const torch::Tensor& others_B4);

}  // namespace shardmark::detection
