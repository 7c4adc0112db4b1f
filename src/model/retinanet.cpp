#include "model/retinanet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/unit.hpp"

namespace shardmark::model {
namespace {

constexpr int kHeadConvolutions = 4;
constexpr std::int64_t kBoxNumbers = 4;
constexpr double kHeadDeviation = 0.01;
// Of an object at any anchor, at the start: the loss of so many background anchors would drown the rest otherwise.
constexpr double kPrior = 0.01;

std::array<std::int64_t, 3> channels_of(const ResNetShape& shape) {
  return {shape.channels_of(1), shape.channels_of(2), shape.channels_of(3)};
}

}  // namespace

RetinaNetHead::RetinaNetHead(ParameterList& list, const std::string& name, const std::string& last,
                             const RetinaNetConfig& config, std::int64_t outputs, double last_bias)
    : list_(&list), unit_(list.begin_unit(name)), outputs_(outputs) {
  const bool normalises = config.variant == RetinaNetVariant::v2;
  const Init weight = Init::normal(0, kHeadDeviation);
  ConvolutionShape shape{config.channels, config.channels, 3, 1};
  for (int i = 0; i < kHeadConvolutions; ++i) {
    const auto bias = normalises ? std::nullopt : std::optional(0.0);
    convolutions_.emplace_back(list, fmt::format("{}.conv.{}.0", name, i), shape, weight, bias);
    if (normalises) {
      norms_.emplace_back(list, fmt::format("{}.conv.{}.1", name, i), config.channels, config.groups);
    }
  }
  shape.channels_out = config.anchors_per_cell * outputs;
  last_.emplace(list, name + "." + last, shape, weight, last_bias);
}

torch::Tensor RetinaNetHead::of_level(const torch::Tensor& x_NCHW) const {
  torch::Tensor x = x_NCHW;
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    x = convolutions_[i].forward(x);
    x = norms_.empty() ? x.relu_() : norms_[i].forward(x).relu_();
  }
  // Channels are anchor-major; each cell's numbers come together.
  return last_->forward(x).permute({0, 2, 3, 1}).reshape({x.size(0), -1, outputs_});
}

torch::Tensor RetinaNetHead::forward(const std::vector<torch::Tensor>& features) const {
  return run_unit_of_many(*list_, unit_, features,
                          [&](const std::vector<torch::Tensor>& levels) {
                            std::vector<torch::Tensor> outputs;
                            for (const auto& level : levels) {
                              outputs.push_back(of_level(level));
                            }
                            return std::vector{at::cat(outputs, 1)};
                          })
      .front()
      .to(at::kFloat);
}

void RetinaNetHead::add_to(ConvolutionCost& cost) const {
  for (const auto& convolution : convolutions_) {
    convolution.add_to(cost);
  }
  last_->add_to(cost);
}

RetinaNet::RetinaNet(ParameterList& list, const RetinaNetConfig& config)
    : list_(&list),
      body_(list, "backbone.body", config.backbone),
      pyramid_(list, "backbone.fpn", channels_of(config.backbone), config.channels,
               config.variant == RetinaNetVariant::v2 ? P6From::c5 : P6From::p5),
      classes_(list, "head.classification_head", "cls_logits", config, config.classes, -std::log((1 - kPrior) / kPrior)),
      boxes_(list, "head.regression_head", "bbox_reg", config, kBoxNumbers, 0) {}

RetinaNet::Output RetinaNet::forward(const torch::Tensor& images_NCHW, const VisionPass& pass) const {
  const auto type = list_->parameters().front().value.scalar_type();
  const auto features = pyramid_.forward(body_.forward(images_NCHW.to(type), pass));
  return {classes_.forward(features), boxes_.forward(features)};
}

std::vector<LevelSize> RetinaNet::levels(std::int64_t height, std::int64_t width) const {
  std::vector<LevelSize> sizes;
  for (const auto& level : pyramid_.costs(body_.costs(height, width))) {
    sizes.push_back({level.height, level.width});
  }
  return sizes;
}

RetinaNetFlops RetinaNet::flops(std::int64_t height, std::int64_t width) const {
  constexpr double kFlops = 2;
  const auto body = body_.costs(height, width);
  auto levels = pyramid_.costs(body);
  RetinaNetFlops flops;
  flops.backbone_and_pyramid = kFlops * (body.back().multiply_adds + levels.back().multiply_adds);
  flops.fixed = kFlops * body_.fixed_multiply_adds(height, width);
  flops.recomputed = kFlops * (body.back().multiply_adds -
                               std::max(body_.stem_multiply_adds(height, width), body_.fixed_multiply_adds(height, width)));
  for (auto& level : levels) {
    level.multiply_adds = 0;
    for (const auto* head : {&classes_, &boxes_}) {
      head->add_to(level);
    }
    flops.heads += kFlops * level.multiply_adds;
  }
  return flops;
}

}  // namespace shardmark::model
