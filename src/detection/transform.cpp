#include "detection/transform.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace shardmark::detection {
namespace {

constexpr std::int64_t kMultiple = 32;

torch::Tensor channels(float red, float green, float blue) {
  return at::tensor(std::vector<float>{red, green, blue}).view({3, 1, 1});
}

}  // namespace

ImageSize resized_size(ImageSize stored, const ResizeRule& rule) {
  const auto shorter = static_cast<double>(std::min(stored.height, stored.width));
  const auto longer = static_cast<double>(std::max(stored.height, stored.width));
  const double scale = std::min(rule.short_side / shorter, rule.long_side / longer);
  // A picture a thousand times as long as high keeps a row.
  const auto scaled = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(static_cast<double>(side) * scale)));
  };
  return {scaled(stored.height), scaled(stored.width)};
}

ImageSize padded_size(const std::vector<ImageSize>& resized) {
  ImageSize most;
  for (const auto& size : resized) {
    most = {std::max(most.height, size.height), std::max(most.width, size.width)};
  }
  const auto rounded = [](std::int64_t side) { return (side + kMultiple - 1) / kMultiple * kMultiple; };
  return {rounded(most.height), rounded(most.width)};
}

torch::Tensor resize_image(const torch::Tensor& pixels_HW3, ImageSize size) {
  const torch::Tensor image = pixels_HW3.permute({2, 0, 1}).to(at::kFloat, false, false, at::MemoryFormat::Contiguous) / 255;
  const torch::Tensor normal = (image - channels(0.485F, 0.456F, 0.406F)) / channels(0.229F, 0.224F, 0.225F);
  return at::upsample_bilinear2d(normal.unsqueeze(0), {size.height, size.width}, /*align_corners=*/false).squeeze(0);
}

torch::Tensor resize_boxes(const torch::Tensor& boxes_B4, ImageSize from, ImageSize to) {
  const float x = static_cast<float>(to.width) / static_cast<float>(from.width);
  const float y = static_cast<float>(to.height) / static_cast<float>(from.height);
  return boxes_B4 * at::tensor(std::vector<float>{x, y, x, y}, boxes_B4.options());
}

torch::Tensor mirror_boxes(const torch::Tensor& boxes_B4, std::int64_t width) {
  return at::stack({width - boxes_B4.select(1, 2), boxes_B4.select(1, 1), width - boxes_B4.select(1, 0), boxes_B4.select(1, 3)},
                   1);
}

torch::Tensor pad_images(const std::vector<torch::Tensor>& images, ImageSize padded) {
  torch::Tensor batch = at::zeros({static_cast<std::int64_t>(images.size()), 3, padded.height, padded.width}, at::kFloat);
  for (std::size_t n = 0; n < images.size(); ++n) {
    const auto& image = images[n];
    SM_CHECK(image.size(1) <= padded.height && image.size(2) <= padded.width, "an image is larger than what it is padded to");
    batch[static_cast<std::int64_t>(n)].narrow(1, 0, image.size(1)).narrow(2, 0, image.size(2)).copy_(image);
  }
  return batch;
}

}  // namespace shardmark::detection
