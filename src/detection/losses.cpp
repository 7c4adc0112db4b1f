#include "detection/losses.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "detection/matcher.hpp"

namespace shardmark::detection {
namespace {

constexpr double kAlpha = 0.25;
constexpr double kTiny = 1e-7;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// One image's share of the focal loss. With s = logit, or -logit where the class is wanted, the probability of being wrong is
/// q = sigmoid(s), and the loss alpha q^2 softplus(s) in both cases.
struct Focal {
  Focal(const torch::Tensor& logits_AK, const torch::Tensor& classes_A) {
    const torch::Tensor wanted_AK = at::zeros_like(logits_AK).scatter_(1, classes_A.clamp_min(0).unsqueeze(1),
                                                                       (classes_A >= 0).to(at::kFloat).unsqueeze(1));
    sign_AK = 1 - 2 * wanted_AK;
    weight_AK = ((1 - kAlpha) - (1 - 2 * kAlpha) * wanted_AK) * (classes_A != kBetween).unsqueeze(1);
    const torch::Tensor s_AK = logits_AK * sign_AK;
    wrong_AK = at::sigmoid(s_AK);
    surprise_AK = at::softplus(s_AK);
  }
  [[nodiscard]] torch::Tensor sum() const { return (weight_AK * wrong_AK.square() * surprise_AK).sum(); }
  [[nodiscard]] torch::Tensor gradient() const {
    return weight_AK * wrong_AK.square() * (2 * (1 - wrong_AK) * surprise_AK + wrong_AK) * sign_AK;
  }

  torch::Tensor sign_AK, weight_AK, wrong_AK, surprise_AK;
};

/// Keeps the logits alone for backward: a dozen tensors of their size otherwise.
struct FocalLoss : torch::autograd::Function<FocalLoss> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& logits_NAK, const torch::Tensor& classes_NA,
                               const torch::Tensor& scale_N) {
    context->save_for_backward({logits_NAK, classes_NA, scale_N});
    std::vector<torch::Tensor> sums;
    for (std::int64_t n = 0; n < logits_NAK.size(0); ++n) {
      sums.push_back(Focal(logits_NAK[n], classes_NA[n]).sum());
    }
    return at::stack(sums) * scale_N;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    torch::Tensor result_NAK = at::empty_like(saved[0], at::MemoryFormat::Contiguous);
    const torch::Tensor scale_N = gradients[0] * saved[2];
    for (std::int64_t n = 0; n < result_NAK.size(0); ++n) {
      result_NAK[n].copy_(Focal(saved[0][n], saved[1][n]).gradient() * scale_N[n]);
    }
    return {result_NAK, {}, {}};
  }
};

torch::Tensor side(const torch::Tensor& boxes_B4, std::int64_t low, std::int64_t high) {
  return boxes_B4.select(1, high) - boxes_B4.select(1, low);
}

}  // namespace

Targets make_targets(const std::vector<Truth>& truths, const torch::Tensor& anchors_A4, std::int64_t counted) {
  SM_CHECK(!truths.empty(), "a batch has images");
  Targets targets;
  std::vector<torch::Tensor> classes, positives, images, anchors, boxes;
  std::vector<float> scales;
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(truths.size()); ++n) {
    const auto& truth = truths[static_cast<std::size_t>(n)];
    const torch::Tensor matched_A = match_anchors(truth.boxes_G4, anchors_A4);
    const torch::Tensor positive_P = at::nonzero(matched_A >= 0).view(-1);
    const torch::Tensor box_P = matched_A.index_select(0, positive_P);
    torch::Tensor wanted_A = matched_A.clone();
    wanted_A.index_put_({positive_P}, truth.labels_G.index_select(0, box_P));
    classes.push_back(wanted_A);
    positives.push_back(positive_P + n * anchors_A4.size(0));
    images.push_back(at::full_like(positive_P, n));
    anchors.push_back(anchors_A4.index_select(0, positive_P));
    boxes.push_back(truth.boxes_G4.index_select(0, box_P));
    const auto objects = static_cast<float>(std::max<std::int64_t>(1, positive_P.size(0)));
    scales.push_back(n < counted ? 1 / objects : 0);
  }
  return {at::stack(classes), at::cat(positives), at::cat(images), at::cat(anchors), at::cat(boxes), at::tensor(scales)};
}

torch::Tensor focal_loss(const torch::Tensor& logits_NAK, const Targets& targets) {
  return FocalLoss::apply(logits_NAK, targets.classes_NA, targets.scale_N);
}

torch::Tensor generalized_iou_loss(const torch::Tensor& boxes_B4, const torch::Tensor& others_B4) {
  const auto common = [&](std::int64_t low, std::int64_t high) {
    const torch::Tensor begin = at::maximum(boxes_B4.select(1, low), others_B4.select(1, low));
    return (at::minimum(boxes_B4.select(1, high), others_B4.select(1, high)) - begin).clamp_min(0);
  };
  const auto around = [&](std::int64_t low, std::int64_t high) {
    return at::maximum(boxes_B4.select(1, high), others_B4.select(1, high)) -
           at::minimum(boxes_B4.select(1, low), others_B4.select(1, low));
  };
  const torch::Tensor shared = common(0, 2) * common(1, 3);
  const torch::Tensor both =
      side(boxes_B4, 0, 2) * side(boxes_B4, 1, 3) + side(others_B4, 0, 2) * side(others_B4, 1, 3) - shared;
  const torch::Tensor enclosing = around(0, 2) * around(1, 3);
  return 1 - (shared / (both + kTiny) - (enclosing - both) / (enclosing + kTiny));
}

torch::Tensor box_loss(const torch::Tensor& deltas_NA4, const Targets& targets, BoxLoss kind) {
  const torch::Tensor deltas_P4 = deltas_NA4.reshape({-1, 4}).index_select(0, targets.positives_P);
  const torch::Tensor each_P = kind == BoxLoss::giou
                                   ? generalized_iou_loss(decode_boxes(deltas_P4, targets.anchors_P4), targets.boxes_P4)
                                   : (deltas_P4 - encode_boxes(targets.boxes_P4, targets.anchors_P4)).abs().sum(1);
  // Also without any object: zeros that hang on the predictions, so that every weight gets a gradient.
  return at::zeros_like(targets.scale_N).index_add(0, targets.images_P, each_P) * targets.scale_N;
}

}  // namespace shardmark::detection
