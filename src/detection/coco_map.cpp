#include "detection/coco_map.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace shardmark::detection {
namespace {

constexpr std::size_t kOverlaps = 10;
constexpr std::size_t kRecalls = 101;
constexpr std::size_t kMostDetections = 100;

/// Evenly spaced as NumPy's linspace gives them: the last bits decide whether an overlap of exactly 0.6 counts.
double spaced(double low, double high, std::size_t count, std::size_t i) {
  const double step = (high - low) / static_cast<double>(count - 1);
  return i + 1 == count ? high : static_cast<double>(i) * step + low;
}

struct AreaRange {
  double low = 0;
  double high = 0;
};
constexpr double kSmall = 32.0 * 32.0;
constexpr double kLarge = 96.0 * 96.0;
constexpr double kAnyArea = 1e10;
constexpr std::array<AreaRange, 4> kAreas{{{0, kAnyArea}, {0, kSmall}, {kSmall, kLarge}, {kLarge, kAnyArea}}};

double overlap(const PlainBox& found, const PlainBox& truth, bool crowd) {
  const double width = std::min(found.x + found.width, truth.x + truth.width) - std::max(found.x, truth.x);
  const double height = std::min(found.y + found.height, truth.y + truth.height) - std::max(found.y, truth.y);
  if (width <= 0 || height <= 0) {
    return 0;
  }
  const double common = width * height;
  const double own = found.width * found.height;
  return common / (crowd ? own : own + truth.width * truth.height - common);
}

/// Truths and detections of one class in one image, the latter by falling score.
struct Cell {
  std::vector<const GroundTruth*> truths;
  std::vector<const Detection*> detections;
};

/// What became of a detection at one overlap.
struct Fate {
  bool hit = false;
  bool ignored = false;
};

struct Judged {
  std::vector<double> scores;
  std::array<std::vector<Fate>, kOverlaps> fates;
  std::int64_t counted_truths = 0;
};

/// Each detection takes the truth that it overlaps most among those still free, counted truths first.
Fate judge_one(const Detection& detection, const std::vector<const GroundTruth*>& truths, const std::vector<bool>& ignored,
               std::vector<bool>& taken, double least) {
  constexpr auto kNone = std::numeric_limits<std::size_t>::max();
  double best = std::min(least, 1 - 1e-10);
  std::size_t match = kNone;
  for (std::size_t g = 0; g < truths.size(); ++g) {
    if (taken[g] && !truths[g]->crowd) {
      continue;
    }
    if (match != kNone && !ignored[match] && ignored[g]) {
      break;  // counted truths come first: the rest is ignored
    }
    const double found = overlap(detection.box, truths[g]->box, truths[g]->crowd);
    if (found >= best) {
      best = found;
      match = g;
    }
  }
  if (match == kNone) {
    return {};
  }
  taken[match] = true;
  return {true, ignored[match]};
}

Judged judge(const Cell& cell, const AreaRange& range) {
  const auto outside = [&](double area) { return area < range.low || area > range.high; };
  auto truths = cell.truths;
  std::ranges::stable_partition(truths, [&](const GroundTruth* truth) { return !(truth->crowd || outside(truth->area)); });
  std::vector<bool> ignored;
  Judged result;
  for (const auto* truth : truths) {
    ignored.push_back(truth->crowd || outside(truth->area));
    result.counted_truths += ignored.back() ? 0 : 1;
  }
  for (const auto* detection : cell.detections) {
    result.scores.push_back(detection->score);
  }
  for (std::size_t t = 0; t < kOverlaps; ++t) {
    std::vector<bool> taken(truths.size());
    for (const auto* detection : cell.detections) {
      Fate fate = judge_one(*detection, truths, ignored, taken, spaced(0.5, 0.95, kOverlaps, t));
      // One that hit nothing counts as false only if its own area lies in the range.
      fate.ignored = fate.ignored || (!fate.hit && outside(detection->box.width * detection->box.height));
      result.fates[t].push_back(fate);
    }
  }
  return result;
}

struct Curve {
  double precision = 0;  // mean over recalls
  double recall = 0;     // largest
};

/// All images of one class at one overlap, with at most `most` detections of each.
Curve curve_of(const std::vector<Judged>& images, std::size_t t, std::size_t most, std::int64_t counted_truths) {
  std::vector<std::pair<double, Fate>> all;
  for (const auto& image : images) {
    for (std::size_t d = 0; d < std::min(most, image.scores.size()); ++d) {
      all.emplace_back(image.scores[d], image.fates[t][d]);
    }
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<double> recalls, precisions;
  double hits = 0;
  double misses = 0;
  for (const auto& [score, fate] : all) {
    if (!fate.ignored) {
      (fate.hit ? hits : misses) += 1;
    }
    recalls.push_back(hits / static_cast<double>(counted_truths));
    precisions.push_back(hits / (hits + misses + std::numeric_limits<double>::epsilon()));
  }
  for (std::size_t i = precisions.size(); i-- > 1;) {
    precisions[i - 1] = std::max(precisions[i - 1], precisions[i]);
  }
  Curve curve;
  curve.recall = recalls.empty() ? 0 : recalls.back();
  for (std::size_t r = 0; r < kRecalls; ++r) {
    const auto place = std::ranges::lower_bound(recalls, spaced(0, 1, kRecalls, r)) - recalls.begin();
    curve.precision += place < std::ssize(precisions) ? precisions[static_cast<std::size_t>(place)] : 0;
  }
  curve.precision /= static_cast<double>(kRecalls);
  return curve;
}

/// Curves of every class that counts in one range of areas, [class][overlap].
struct Curves {
  std::vector<std::array<Curve, kOverlaps>> of_class;

  [[nodiscard]] double mean(double Curve::*value, std::size_t first = 0, std::size_t last = kOverlaps) const {
    if (of_class.empty()) {
      return -1;
    }
    double sum = 0;
    for (const auto& curves : of_class) {
      for (std::size_t t = first; t < last; ++t) {
        sum += curves[t].*value;
      }
    }
    return sum / static_cast<double>(of_class.size() * (last - first));
  }
};

using Cells = std::map<std::int64_t, std::map<std::int64_t, Cell>>;  // class, image

Cells sort_into_cells(const std::vector<GroundTruth>& truths, const std::vector<Detection>& detections) {
  Cells cells;
  std::set<std::int64_t> classes;
  for (const auto& truth : truths) {
    cells[truth.label][truth.image].truths.push_back(&truth);
    classes.insert(truth.label);
  }
  for (const auto& detection : detections) {
    if (classes.contains(detection.label)) {
      cells[detection.label][detection.image].detections.push_back(&detection);
    }
  }
  for (auto& [label, images] : cells) {
    for (auto& [image, cell] : images) {
      std::ranges::stable_sort(cell.detections, [](const auto* a, const auto* b) { return a->score > b->score; });
      cell.detections.resize(std::min(cell.detections.size(), kMostDetections));
    }
  }
  return cells;
}

Curves curves_of(const Cells& cells, const AreaRange& range, std::size_t most) {
  Curves result;
  for (const auto& [label, images] : cells) {
    std::vector<Judged> judged;
    std::int64_t counted = 0;
    for (const auto& [image, cell] : images) {
      judged.push_back(judge(cell, range));
      counted += judged.back().counted_truths;
    }
    if (counted == 0) {
      continue;
    }
    auto& curves = result.of_class.emplace_back();
    for (std::size_t t = 0; t < kOverlaps; ++t) {
      curves[t] = curve_of(judged, t, most, counted);
    }
  }
  return result;
}

}  // namespace

CocoScores coco_scores(const std::vector<GroundTruth>& truths, const std::vector<Detection>& detections) {
  const Cells cells = sort_into_cells(truths, detections);
  const auto of_area = [&](std::size_t area) { return curves_of(cells, kAreas[area], kMostDetections); };
  const Curves all = of_area(0);
  const Curves small = of_area(1);
  const Curves medium = of_area(2);
  const Curves large = of_area(3);
  CocoScores scores;
  scores.ap = all.mean(&Curve::precision);
  scores.ap50 = all.mean(&Curve::precision, 0, 1);
  scores.ap75 = all.mean(&Curve::precision, 5, 6);
  scores.ap_small = small.mean(&Curve::precision);
  scores.ap_medium = medium.mean(&Curve::precision);
  scores.ap_large = large.mean(&Curve::precision);
  scores.ar1 = curves_of(cells, kAreas[0], 1).mean(&Curve::recall);
  scores.ar10 = curves_of(cells, kAreas[0], 10).mean(&Curve::recall);
  scores.ar100 = all.mean(&Curve::recall);
  scores.ar_small = small.mean(&Curve::recall);
  scores.ar_medium = medium.mean(&Curve::recall);
  scores.ar_large = large.mean(&Curve::recall);
  return scores;
}

}  // namespace shardmark::detection
