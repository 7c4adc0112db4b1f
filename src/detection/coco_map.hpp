#pragma once
// Mean average precision as the COCO challenge defines it. No tensors: plain numbers of all images together.

#include <array>
#include <cstdint>
#include <vector>

namespace shardmark::detection {

struct PlainBox {
  double x = 0;  // of the top left corner
  double y = 0;
  double width = 0;
  double height = 0;
};

struct GroundTruth {
  std::int64_t image = 0;
  std::int64_t label = 0;
  PlainBox box;
  double area = 0;     // of the object; decides small, medium, large
  bool crowd = false;  // a region: may swallow any number of detections, and is missed by none
};

struct Detection {
  std::int64_t image = 0;
  std::int64_t label = 0;
  PlainBox box;
  double score = 0;
};

/// The twelve numbers of the challenge; -1 where no truth counts.
struct CocoScores {
  double ap = -1;    // mean over classes and overlaps 0.50, 0.55, ..., 0.95; 101 recalls; 100 detections an image
  double ap50 = -1;  // overlap 0.5
  double ap75 = -1;
  double ap_small = -1;   // area below 32^2
  double ap_medium = -1;  // to 96^2
  double ap_large = -1;
  double ar1 = -1;  // mean recall with 1, 10, 100 detections an image
  double ar10 = -1;
  double ar100 = -1;
  double ar_small = -1;
  double ar_medium = -1;
  double ar_large = -1;
  [[nodiscard]] std::array<double, 12> all() const {
    return {ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1, ar10, ar100, ar_small, ar_medium, ar_large};
  }
};

/// Detections of equal score keep their order, so that the order of images decides: give them in one order. Classes are those
/// that occur in `truths`.
[[nodiscard]] CocoScores coco_scores(const std::vector<GroundTruth>& truths, const std::vector<Detection>& detections);

}  // namespace shardmark::detection
