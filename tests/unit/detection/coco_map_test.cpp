// tests/parity/test_coco_map.py holds the same numbers to those of pycocotools; here is what can be said by hand.
#include "detection/coco_map.hpp"

#include <gtest/gtest.h>

namespace shardmark::detection {
namespace {

GroundTruth truth(std::int64_t image, std::int64_t label, PlainBox box, bool crowd = false) {
  return {image, label, box, box.width * box.height, crowd};
}

constexpr PlainBox kBox{10, 10, 40, 40};
constexpr PlainBox kElsewhere{100, 100, 40, 40};

TEST(CocoMap, PerfectDetectionsScoreOne) {
  const auto scores = coco_scores({truth(1, 1, kBox), truth(2, 3, kBox)}, {{1, 1, kBox, 0.9}, {2, 3, kBox, 0.2}});
  EXPECT_NEAR(scores.ap, 1, 1e-12);
  EXPECT_EQ(scores.ar1, 1);
  EXPECT_NEAR(scores.ap_medium, 1, 1e-12);
  EXPECT_EQ(scores.ap_small, -1) << "no truth is small";
}

TEST(CocoMap, AMissAboveTheHitHalvesPrecision) {
  const auto scores = coco_scores({truth(1, 1, kBox)}, {{1, 1, kElsewhere, 0.9}, {1, 1, kBox, 0.8}});
  EXPECT_NEAR(scores.ap50, 0.5, 1e-12);
  EXPECT_EQ(scores.ar1, 0) << "the first detection of the image is the miss";
  EXPECT_EQ(scores.ar10, 1);
}

TEST(CocoMap, OverlapDecidesAtWhichLimitsItCounts) {
  // 40 x 30 of 40 x 40: 0.75, which counts at 0.5 to 0.75, six of ten limits.
  const auto scores = coco_scores({truth(1, 1, kBox)}, {{1, 1, {10, 10, 40, 30}, 0.9}});
  EXPECT_NEAR(scores.ap, 0.6, 1e-12);
  EXPECT_NEAR(scores.ap75, 1, 1e-12);
}

TEST(CocoMap, ATruthIsFoundOnce) {
  const auto scores = coco_scores({truth(1, 1, kBox), truth(1, 1, kElsewhere)}, {{1, 1, kBox, 0.9}, {1, 1, kBox, 0.8}});
  // Half of the recalls, 51 of 101, have precision 1.
  EXPECT_NEAR(scores.ap50, 51.0 / 101.0, 1e-12);
}

TEST(CocoMap, ACrowdSwallowsDetectionsAndIsNotMissed) {
  const PlainBox crowd{0, 0, 200, 200};
  const auto scores = coco_scores({truth(1, 1, kBox), truth(1, 1, crowd, true)},
                                  {{1, 1, kElsewhere, 0.9}, {1, 1, kElsewhere, 0.8}, {1, 1, kBox, 0.7}});
  EXPECT_NEAR(scores.ap, 1, 1e-12);
}

TEST(CocoMap, WithoutDetectionsZeroWithoutTruthsNothing) {
  EXPECT_EQ(coco_scores({truth(1, 1, kBox)}, {}).ap, 0);
  EXPECT_EQ(coco_scores({}, {{1, 1, kBox, 0.9}}).ap, -1);
}

}  // namespace
}  // namespace shardmark::detection
