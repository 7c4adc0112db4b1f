#pragma once
// The pictures, boxes and results of the RetinaNet fixtures.

#include <torch/torch.h>

#include <string>
#include <vector>

#include "detection/losses.hpp"
#include "detection/transform.hpp"
#include "tests/support/tensors.hpp"

namespace shardmark::testing {

struct DetectionFixture {
  explicit DetectionFixture(const std::string& name)
      : folder(SM_TEST_SOURCE_DIR "/tests/fixtures/" + name + "/"), reference(folder + "reference.safetensors") {}

  [[nodiscard]] torch::Tensor read(const std::string& tensor) const { return read_tensor(reference, tensor); }

  /// Stored pixels, (H, W, 3).
  [[nodiscard]] torch::Tensor pixels(const std::string& part, int image) const {
    return read(part + ".image." + std::to_string(image)).permute({1, 2, 0}).contiguous();
  }

  /// Pictures as the model sees them, with their boxes.
  struct Batch {
    torch::Tensor images_N3HW;
    std::vector<detection::Truth> truths;
    std::vector<detection::ImageSize> sizes;  // resized, without padding
    detection::ImageSize padded;
  };
  [[nodiscard]] Batch batch(const std::string& part, int num_images) const {
    Batch made;
    std::vector<torch::Tensor> images;
    for (int i = 0; i < num_images; ++i) {
      const torch::Tensor stored = pixels(part, i);
      const detection::ImageSize from{stored.size(0), stored.size(1)};
      const auto to = detection::resized_size(from, {128, 160});
      images.push_back(detection::resize_image(stored, to));
      made.sizes.push_back(to);
      made.truths.push_back({detection::resize_boxes(read(part + ".boxes." + std::to_string(i)), from, to),
                             read(part + ".labels." + std::to_string(i))});
    }
    made.padded = detection::padded_size(made.sizes);
    made.images_N3HW = detection::pad_images(images, made.padded);
    return made;
  }

  std::string folder;
  weights::SafetensorsFile reference;
};

/// Levels of a picture padded to 160 x 160, as reference.json has them.
inline const std::vector<detection::ImageSize> kFixtureLevels{{20, 20}, {10, 10}, {5, 5}, {3, 3}, {2, 2}};

[[nodiscard]] inline double largest_difference(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return found.numel() == 0 ? 0 : (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace shardmark::testing
