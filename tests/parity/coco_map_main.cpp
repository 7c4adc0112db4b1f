// Reads truths ("T image label x y width height area crowd") and detections ("D image label x y width height score") as lines
// from standard input, prints the twelve COCO scores.

#include <fmt/format.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "detection/coco_map.hpp"

int main() {
  using shardmark::detection::Detection;
  using shardmark::detection::GroundTruth;
  std::vector<GroundTruth> truths;
  std::vector<Detection> detections;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    char kind = 0;
    GroundTruth truth;
    auto& [x, y, width, height] = truth.box;
    words >> kind >> truth.image >> truth.label >> x >> y >> width >> height;
    double last = 0;
    if (kind == 'T') {
      words >> truth.area >> last;
      truth.crowd = last != 0;
      truths.push_back(truth);
    } else {
      words >> last;
      detections.push_back({truth.image, truth.label, truth.box, last});
    }
    if (!words) {
      std::cerr << "cannot read: " << line << "\n";
      return 2;
    }
  }
  for (const double score : shardmark::detection::coco_scores(truths, detections).all()) {
    fmt::print("{:.17g}\n", score);
  }
  return 0;
}
