#include "detection/boxes.hpp"

#include <cmath>

namespace shardmark::detection {
namespace {

const double kLargestLogRatio = std::log(1000.0 / 16.0);

/// Width, height and centre, each (B).
struct Sides {
  explicit Sides(const torch::Tensor& boxes_B4)
      : width(boxes_B4.select(1, 2) - boxes_B4.select(1, 0)),
        height(boxes_B4.select(1, 3) - boxes_B4.select(1, 1)),
        x(boxes_B4.select(1, 0) + 0.5 * width),
        y(boxes_B4.select(1, 1) + 0.5 * height) {}
  torch::Tensor width, height, x, y;
};

torch::Tensor area(const torch::Tensor& boxes_B4) {
  return (boxes_B4.select(1, 2) - boxes_B4.select(1, 0)) * (boxes_B4.select(1, 3) - boxes_B4.select(1, 1));
}

}  // namespace

torch::Tensor intersection_over_union(const torch::Tensor& boxes_G4, const torch::Tensor& anchors_A4) {
  const auto side = [&](std::int64_t low, std::int64_t high) {
    const torch::Tensor begin = at::maximum(boxes_G4.select(1, low).unsqueeze(1), anchors_A4.select(1, low));
    return (at::minimum(boxes_G4.select(1, high).unsqueeze(1), anchors_A4.select(1, high)) - begin).clamp_min(0);
  };
  const torch::Tensor common = side(0, 2) * side(1, 3);
  return common / (area(boxes_G4).unsqueeze(1) + area(anchors_A4) - common);
}

torch::Tensor clip_boxes(const torch::Tensor& boxes_B4, ImageSize size) {
  const torch::Tensor limits =
      at::tensor({static_cast<float>(size.width), static_cast<float>(size.height)}, boxes_B4.options()).repeat({2});
  return at::minimum(boxes_B4.clamp_min(0), limits);
}

torch::Tensor encode_boxes(const torch::Tensor& boxes_B4, const torch::Tensor& anchors_B4) {
  const Sides box(boxes_B4);
  const Sides anchor(anchors_B4);
  return at::stack({(box.x - anchor.x) / anchor.width, (box.y - anchor.y) / anchor.height, at::log(box.width / anchor.width),
                    at::log(box.height / anchor.height)},
                   1);
}

torch::Tensor decode_boxes(const torch::Tensor& deltas_B4, const torch::Tensor& anchors_B4) {
  const Sides anchor(anchors_B4);
  const torch::Tensor x = deltas_B4.select(1, 0) * anchor.width + anchor.x;
  const torch::Tensor y = deltas_B4.select(1, 1) * anchor.height + anchor.y;
  const torch::Tensor half_width = 0.5 * (at::exp(deltas_B4.select(1, 2).clamp_max(kLargestLogRatio)) * anchor.width);
  const torch::Tensor half_height = 0.5 * (at::exp(deltas_B4.select(1, 3).clamp_max(kLargestLogRatio)) * anchor.height);
  return at::stack({x - half_width, y - half_height, x + half_width, y + half_height}, 1);
}

}  // namespace shardmark::detection
