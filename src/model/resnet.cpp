#include "model/resnet.hpp"

#include <fmt/format.h>

#include "model/unit.hpp"

namespace shardmark::model {
namespace {

constexpr std::int64_t kExpansion = 4;

ConvolutionShape stem_shape(std::int64_t channels) {
  return {.channels_in = 3, .channels_out = channels, .kernel = 7, .stride = 2};
}

}  // namespace

Bottleneck::Layer::Layer(ParameterList& list, const std::string& convolution_name, const std::string& norm_name,
                         const ConvolutionShape& shape, BatchStatistics statistics)
    : convolution(list, convolution_name, shape, kaiming_normal(shape)),
      norm(list, norm_name, shape.channels_out, statistics) {}

torch::Tensor Bottleneck::Layer::forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const {
  return norm.forward(convolution.forward(x_NCHW), pass);
}

Bottleneck::Bottleneck(ParameterList& list, const std::string& name, const Shape& shape, BatchStatistics statistics)
    : first_(list, name + ".conv1", name + ".bn1", {shape.channels_in, shape.width, 1, 1}, statistics),
      second_(list, name + ".conv2", name + ".bn2", {shape.width, shape.width, 3, shape.stride}, statistics),
      third_(list, name + ".conv3", name + ".bn3", {shape.width, kExpansion * shape.width, 1, 1}, statistics) {
  if (shape.projects) {
    around_.emplace(list, name + ".downsample.0", name + ".downsample.1",
                    ConvolutionShape{shape.channels_in, kExpansion * shape.width, 1, shape.stride}, statistics);
  }
}

torch::Tensor Bottleneck::forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const {
  // The pyramid may use this block's input too. A node of its own adds what comes from inside the block first, in one order
  // whether or not someone observes units.
  const torch::Tensor x = around_ ? at::alias(x_NCHW) : x_NCHW;
  torch::Tensor y = first_.forward(x, pass).relu_();
  y = second_.forward(y, pass).relu_();
  y = third_.forward(y, pass);
  return y.add_(around_ ? around_->forward(x, pass) : x).relu_();
}

void Bottleneck::add_to(ConvolutionCost& cost) const {
  if (around_) {
    ConvolutionCost beside{cost.height, cost.width, 0};
    around_->convolution.add_to(beside);
    cost.multiply_adds += beside.multiply_adds;
  }
  for (const Layer* layer : {&first_, &second_, &third_}) {
    layer->convolution.add_to(cost);
  }
}

ResNet::ResNet(ParameterList& list, const std::string& name, const ResNetShape& shape)
    : list_(&list),
      frozen_(shape.statistics == BatchStatistics::frozen),
      stem_unit_(list.begin_unit(name + ".stem")),
      stem_(list, name + ".conv1", stem_shape(shape.stem), kaiming_normal(stem_shape(shape.stem))),
      stem_norm_(list, name + ".bn1", shape.stem, shape.statistics) {
  std::int64_t channels = shape.stem;
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    for (std::int64_t block = 0; block < shape.blocks[stage]; ++block) {
      const std::string block_name = fmt::format("{}.layer{}.{}", name, stage + 1, block);
      const std::int64_t unit = list.begin_unit(block_name);
      const Bottleneck::Shape of_block{.channels_in = channels,
                                       .width = shape.stem << stage,
                                       .stride = block == 0 && stage > 0 ? 2 : 1,
                                       .projects = block == 0};
      blocks_.push_back({unit, stage, Bottleneck(list, block_name, of_block, shape.statistics)});
      channels = shape.channels_of(stage);
    }
  }
  if (frozen_) {
    for (auto& parameter : list.parameters()) {
      for (const auto& unit : blocks_) {
        if (parameter.unit == stem_unit_ || (unit.stage == 0 && parameter.unit == unit.index)) {
          parameter.trainable = false;
        }
      }
    }
  }
}

std::vector<torch::Tensor> ResNet::forward(const torch::Tensor& images_NCHW, const VisionPass& pass) const {
  torch::Tensor x = run_unit(*list_, stem_unit_, images_NCHW, [&](const torch::Tensor& in) {
    const torch::Tensor y = stem_norm_.forward(stem_.forward(in), pass).relu_();
    return at::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
  });
  std::vector<torch::Tensor> outputs;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Unit& unit = blocks_[i];
    x = run_unit(
        *list_, unit.index, x, [&unit, pass](const torch::Tensor& in) { return unit.block.forward(in, pass); },
        /*checkpointable=*/true);
    if (unit.stage > 0 && ends_stage(i)) {
      outputs.push_back(x);
    }
  }
  return outputs;
}

void ResNet::walk(ConvolutionCost& cost, const std::function<void(std::size_t)>& behind_stage) const {
  stem_.add_to(cost);
  cost.height = (cost.height - 1) / 2 + 1;  // the pooling
  cost.width = (cost.width - 1) / 2 + 1;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].block.add_to(cost);
    if (ends_stage(i)) {
      behind_stage(blocks_[i].stage);
    }
  }
}

std::vector<ConvolutionCost> ResNet::costs(std::int64_t height, std::int64_t width) const {
  ConvolutionCost cost{height, width, 0};
  std::vector<ConvolutionCost> outputs;
  walk(cost, [&](std::size_t stage) {
    if (stage > 0) {
      outputs.push_back(cost);
    }
  });
  return outputs;
}

double ResNet::stem_multiply_adds(std::int64_t height, std::int64_t width) const {
  ConvolutionCost cost{height, width, 0};
  stem_.add_to(cost);
  return cost.multiply_adds;
}

double ResNet::fixed_multiply_adds(std::int64_t height, std::int64_t width) const {
  ConvolutionCost cost{height, width, 0};
  double fixed = 0;
  walk(cost, [&](std::size_t stage) {
    if (frozen_ && stage == 0) {
      fixed = cost.multiply_adds;
    }
  });
  return fixed;
}

}  // namespace shardmark::model
