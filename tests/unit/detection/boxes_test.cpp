#include "detection/boxes.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace shardmark::detection {
namespace {

torch::Tensor boxes(std::initializer_list<float> numbers) {
  return at::tensor(std::vector<float>(numbers)).view({-1, 4});
}

TEST(Boxes, OverlapOfEveryPair) {
  const torch::Tensor found =
      intersection_over_union(boxes({0, 0, 4, 4, 2, 2, 4, 4}), boxes({0, 0, 4, 4, 2, 0, 6, 4, 8, 8, 9, 9}));
  // 16 / 16, 8 / 24, none; 4 / 16, 4 / 16, none: exact in fp32 but for a third, which rounds once.
  const torch::Tensor expected = at::tensor(std::vector<float>{1, 8.0F / 24.0F, 0, 0.25F, 0.25F, 0}).view({2, 3});
  EXPECT_TRUE(at::equal(found, expected)) << found;
}

TEST(Boxes, WithoutAreaOverlapNothing) {
  EXPECT_EQ(intersection_over_union(boxes({1, 1, 1, 3}), boxes({0, 0, 4, 4})).item<float>(), 0);
}

TEST(Boxes, CodeOfAKnownPair) {
  // Anchor 4 x 2 at (2, 1), box 8 x 2 at (4, 3): offsets 2 / 4 and 2 / 2, ratios 2 and 1.
  const torch::Tensor code = encode_boxes(boxes({0, 2, 8, 4}), boxes({0, 0, 4, 2}));
  EXPECT_TRUE(at::allclose(code, boxes({0.5F, 1, std::log(2.0F), 0}), 1e-6, 1e-7)) << code;
  EXPECT_TRUE(at::allclose(decode_boxes(code, boxes({0, 0, 4, 2})), boxes({0, 2, 8, 4}), 1e-6, 1e-6));
}

TEST(Boxes, DecodingCutsTheLogarithm) {
  const torch::Tensor found = decode_boxes(boxes({0, 0, 100, 4.13516656F}), boxes({0, 0, 16, 16}));
  // Either side becomes 1000 long, around (8, 8); 62.5 x 16 is exact, the logarithm's rounding moves it by 1e-6 of 500.
  EXPECT_TRUE(at::allclose(found, boxes({-492, -492, 508, 508}), 0, 1e-3)) << found;
}

TEST(Boxes, ClippingKeepsBoxesOutside) {
  const torch::Tensor found = clip_boxes(boxes({-5, 2, 12, 30, 40, -9, 50, -3}), {20, 10});
  EXPECT_TRUE(at::equal(found, boxes({0, 2, 10, 20, 10, 0, 10, 0}))) << found;
}

}  // namespace
}  // namespace shardmark::detection
