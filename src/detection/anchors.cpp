#include "detection/anchors.hpp"

#include "base/error.hpp"

namespace shardmark::detection {
namespace {

// Whole parts of 2^(5 + level) x 2^(k / 3).
constexpr float kSizes[kLevels][3] = {{32, 40, 50}, {64, 80, 101}, {128, 161, 203}, {256, 322, 406}, {512, 645, 812}};

}  // namespace

torch::Tensor cell_anchors(std::int64_t level) {
  SM_CHECK(level >= 0 && level < kLevels, "the pyramid has five levels");
  const torch::Tensor sizes = at::tensor(std::vector<float>(kSizes[level], kSizes[level] + 3));
  const torch::Tensor tall = at::sqrt(at::tensor(std::vector<float>{0.5F, 1.0F, 2.0F}));
  const torch::Tensor heights = (tall.unsqueeze(1) * sizes).view(-1);
  const torch::Tensor widths = (tall.reciprocal().unsqueeze(1) * sizes).view(-1);
  return (at::stack({-widths, -heights, widths, heights}, 1) / 2).round();
}

torch::Tensor make_anchors(ImageSize padded, const std::vector<ImageSize>& levels) {
  SM_CHECK(static_cast<std::int64_t>(levels.size()) == kLevels, "the pyramid has five levels");
  std::vector<torch::Tensor> all;
  for (std::int64_t level = 0; level < kLevels; ++level) {
    const auto [height, width] = levels[static_cast<std::size_t>(level)];
    const torch::Tensor ys = (at::arange(height, at::kFloat) * (padded.height / height)).unsqueeze(1).expand({height, width});
    const torch::Tensor xs = (at::arange(width, at::kFloat) * (padded.width / width)).expand({height, width});
    const torch::Tensor shifts = at::stack({xs, ys, xs, ys}, 2).view({-1, 1, 4});
    all.push_back((shifts + cell_anchors(level)).view({-1, 4}));
  }
  return at::cat(all);
}

}  // namespace shardmark::detection
