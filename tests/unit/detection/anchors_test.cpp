#include "detection/anchors.hpp"

#include <gtest/gtest.h>

#include "tests/support/detection_fixture.hpp"

namespace shardmark::detection {
namespace {

TEST(Anchors, OfTheFinestLevelAreThePublishedOnes) {
  const torch::Tensor expected =
      at::tensor(std::vector<float>{-23, -11, 23,  11,  -28, -14, 28,  14,  -35, -18, 35,  18,  -16, -16, 16,  16,  -20, -20,
                                    20,  20,  -25, -25, 25,  25,  -11, -23, 11,  23,  -14, -28, 14,  28,  -18, -35, 18,  35})
          .view({9, 4});
  EXPECT_TRUE(at::equal(cell_anchors(0), expected)) << cell_anchors(0);
}

TEST(Anchors, OfTheFixtureExactly) {
  const testing::DetectionFixture fixture("micro-retinanet");
  EXPECT_TRUE(at::equal(make_anchors({160, 160}, testing::kFixtureLevels), fixture.read("mixed.anchors")));
}

TEST(Anchors, AsManyAsPublished) {
  const std::vector<ImageSize> levels{{100, 168}, {50, 84}, {25, 42}, {13, 21}, {7, 11}};
  EXPECT_EQ(make_anchors({800, 1344}, levels).size(0), 201600);
}

}  // namespace
}  // namespace shardmark::detection
