#pragma once
// The fixed boxes that a RetinaNet's predictions are relative to: nine for every cell of every level of the pyramid.

#include <torch/torch.h>

#include <vector>

#include "detection/boxes.hpp"

namespace shardmark::detection {

inline constexpr std::int64_t kAnchorsPerCell = 9;
inline constexpr std::int64_t kLevels = 5;  // P3 to P7

/// Boxes around the origin of a level, (9, 4): three aspect ratios (height / width 0.5, 1, 2) outermost, three sizes each,
/// coordinates rounded half to even.
[[nodiscard]] torch::Tensor cell_anchors(std::int64_t level);

/// (A, 4), level after level, row after row of cells. A cell's anchors lie at its index x stride, not at its centre;
/// stride = padded side / side of the level, in whole numbers.
[[nodiscard]] torch::Tensor make_anchors(ImageSize padded, const std::vector<ImageSize>& levels);

}  // namespace shardmark::detection
