#include "detection/decode.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace shardmark::detection {
namespace {

float overlap(const float* a, const float* b) {
  const float width = std::max(0.0F, std::min(a[2], b[2]) - std::max(a[0], b[0]));
  const float height = std::max(0.0F, std::min(a[3], b[3]) - std::max(a[1], b[1]));
  const float common = width * height;
  // Not a number for two boxes without area: that is above no limit.
  return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common);
}

}  // namespace

std::vector<std::int64_t> suppress_overlaps(const torch::Tensor& boxes_B4, const torch::Tensor& scores_B,
                                            const torch::Tensor& labels_B, double overlap_above) {
  const torch::Tensor boxes = boxes_B4.to(at::kFloat).contiguous();
  const torch::Tensor scores = scores_B.to(at::kFloat).contiguous();
  const torch::Tensor labels = labels_B.to(at::kLong).contiguous();
  const float* box = boxes.const_data_ptr<float>();
  const float* score = scores.const_data_ptr<float>();
  const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(scores.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return score[a] > score[b]; });
  std::vector<std::int64_t> kept;
  for (const std::int64_t candidate : order) {
    const auto drops = [&](std::int64_t other) {
      return label[other] == label[candidate] &&
             static_cast<double>(overlap(box + 4 * other, box + 4 * candidate)) > overlap_above;
    };
    if (std::ranges::none_of(kept, drops)) {
      kept.push_back(candidate);
    }
  }
  return kept;
}

Detections decode(const torch::Tensor& logits_AK, const torch::Tensor& deltas_A4, const torch::Tensor& anchors_A4,
                  const std::vector<std::int64_t>& anchors_per_level, ImageSize size, const DecodeRule& rule) {
  SM_CHECK(std::accumulate(anchors_per_level.begin(), anchors_per_level.end(), std::int64_t{0}) == logits_AK.size(0),
           "the levels do not add up to all anchors");
  const std::int64_t num_classes = logits_AK.size(1);
  std::vector<torch::Tensor> boxes, scores, labels;
  std::int64_t first = 0;
  for (const std::int64_t count : anchors_per_level) {
    const torch::Tensor score = at::sigmoid(logits_AK.narrow(0, first, count).reshape(-1));
    const torch::Tensor candidates = at::nonzero(score > rule.score_above).view(-1);
    const auto [top, places] =
        at::topk(score.index_select(0, candidates), std::min(rule.candidates_per_level, candidates.size(0)));
    const torch::Tensor chosen = candidates.index_select(0, places);
    const torch::Tensor anchor = at::div(chosen, num_classes, "floor") + first;
    boxes.push_back(clip_boxes(decode_boxes(deltas_A4.index_select(0, anchor), anchors_A4.index_select(0, anchor)), size));
    scores.push_back(top);
    labels.push_back(at::remainder(chosen, num_classes));
    first += count;
  }
  const torch::Tensor all_boxes = at::cat(boxes);
  const torch::Tensor all_scores = at::cat(scores);
  const torch::Tensor all_labels = at::cat(labels);
  auto kept = suppress_overlaps(all_boxes, all_scores, all_labels, rule.overlap_above);
  kept.resize(std::min(kept.size(), static_cast<std::size_t>(rule.keep)));
  const torch::Tensor keep = at::tensor(kept, at::kLong);
  return {all_boxes.index_select(0, keep), all_scores.index_select(0, keep), all_labels.index_select(0, keep)};
}

}  // namespace shardmark::detection
