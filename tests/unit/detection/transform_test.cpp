#include "detection/transform.hpp"

#include <gtest/gtest.h>

#include "tests/support/detection_fixture.hpp"

namespace shardmark::detection {
namespace {

TEST(Transform, SizesFollowTheShortOrTheLongSide) {
  const ResizeRule recipe{800, 1333};
  EXPECT_EQ(resized_size({480, 640}, recipe), (ImageSize{800, 1066}));
  EXPECT_EQ(resized_size({640, 480}, recipe), (ImageSize{1066, 800}));
  EXPECT_EQ(resized_size({300, 900}, recipe), (ImageSize{444, 1333}));
  EXPECT_EQ(padded_size({{800, 1066}, {444, 1333}}), (ImageSize{800, 1344}));
}

TEST(Transform, ALineOfPixelsKeepsARow) {
  EXPECT_EQ(resized_size({1, 5000}, {800, 1333}), (ImageSize{1, 1333}));
}

TEST(Transform, MirroringTwiceGivesTheBoxesBack) {
  const torch::Tensor boxes = at::tensor(std::vector<float>{1, 2, 5, 9}).view({1, 4});
  const torch::Tensor mirrored = mirror_boxes(boxes, 20);
  EXPECT_TRUE(at::equal(mirrored, at::tensor(std::vector<float>{15, 2, 19, 9}).view({1, 4})));
  EXPECT_TRUE(at::equal(mirror_boxes(mirrored, 20), boxes));
}

TEST(Transform, OfTheFixture) {
  const testing::DetectionFixture fixture("micro-retinanet");
  const auto batch = fixture.batch("mixed", 3);
  const torch::Tensor sizes = fixture.read("mixed.resized_size");
  const torch::Tensor checksums = fixture.read("mixed.padded_checksum");
  EXPECT_EQ(batch.padded, (ImageSize{160, 160}));
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(batch.sizes[at], (ImageSize{sizes[i][0].item<std::int64_t>(), sizes[i][1].item<std::int64_t>()}));
    // Two roundings of coordinates below 256.
    EXPECT_LE(testing::largest_difference(batch.truths[at].boxes_G4, fixture.read("mixed.resized_boxes." + std::to_string(i))),
              2 * 256 * 0x1.0p-24);
    const torch::Tensor image = batch.images_N3HW[i].to(at::kDouble);
    // 76,800 values below 3, each with the error of some roundings (see below), of either sign.
    EXPECT_NEAR(image.sum().item<double>(), checksums[i][0].item<double>(), 76800 * 3 * 0x1.0p-22);
    EXPECT_NEAR(image.square().sum().item<double>() / checksums[i][1].item<double>(), 1, 0x1.0p-20);
  }
  // Value and deviation are rounded, four pixels are weighted and added: some ten roundings of numbers below 3.
  EXPECT_LE(testing::largest_difference(batch.images_N3HW[0], fixture.read("mixed.padded_image.0")), 10 * 3 * 0x1.0p-24);
}

}  // namespace
}  // namespace shardmark::detection
