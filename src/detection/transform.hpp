#pragma once
// From an image as stored to what a detector sees: normalised, resized, mirrored, padded. Host memory only.

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "detection/boxes.hpp"

namespace shardmark::detection {

/// Images are scaled so that the short side becomes `short_side`, or the long side `long_side` where that is less.
struct ResizeRule {
  double short_side = 0;
  double long_side = 0;
};

/// floor(side x scale), in double: in fp32 480 x (800 / 480) would be 799.
[[nodiscard]] ImageSize resized_size(ImageSize stored, const ResizeRule& rule);

/// Side lengths rounded up to a multiple of 32, the largest stride whose feature map a backbone makes.
[[nodiscard]] ImageSize padded_size(const std::vector<ImageSize>& resized);

/// Stored pixels (H, W, 3) uint8 -> (3, height, width) fp32: value / 255, minus mean, over deviation, then bilinear with
/// corners not aligned.
[[nodiscard]] torch::Tensor resize_image(const torch::Tensor& pixels_HW3, ImageSize size);

/// Boxes of the stored image in pixels of the resized one: each axis by its own ratio.
[[nodiscard]] torch::Tensor resize_boxes(const torch::Tensor& boxes_B4, ImageSize from, ImageSize to);

/// Left and right swapped in an image of this width.
[[nodiscard]] torch::Tensor mirror_boxes(const torch::Tensor& boxes_B4, std::int64_t width);

/// (N, 3, height, width): images at the top left, zeros elsewhere.
[[nodiscard]] torch::Tensor pad_images(const std::vector<torch::Tensor>& images, ImageSize padded);

}  // namespace shardmark::detection
