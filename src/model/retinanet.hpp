#pragma once
// RetinaNet: ResNet, feature pyramid, and two heads that all levels share. Knows nothing of anchors, boxes or losses: see
// src/detection. State names and first values as in the public implementation.
// Letters: N images, A anchors over all levels, K classes; others as in convolution.hpp.

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "model/fpn.hpp"
#include "model/resnet.hpp"

namespace shardmark::model {

enum class RetinaNetVariant : std::uint8_t {
  v1,  // P6 from P5; heads without normalisation, their convolutions with bias
  v2   // P6 from C5; heads with group normalisation, their convolutions without bias
};

struct RetinaNetConfig {
  RetinaNetVariant variant = RetinaNetVariant::v2;
  ResNetShape backbone;
  std::int64_t channels = 256;  // of pyramid and heads
  std::int64_t groups = 32;     // v2
  std::int64_t classes = 91;
  std::int64_t anchors_per_cell = 9;
};

/// Four convolutions and the one that predicts `outputs` numbers for each anchor of a cell. One unit.
class RetinaNetHead {
 public:
  RetinaNetHead(ParameterList& list, const std::string& name, const std::string& last, const RetinaNetConfig& config,
                std::int64_t outputs, double last_bias);
  /// (N, A, outputs): levels one after another, cells row by row, anchors of a cell together.
  [[nodiscard]] torch::Tensor forward(const std::vector<torch::Tensor>& features) const;
  void add_to(ConvolutionCost& cost) const;

 private:
  [[nodiscard]] torch::Tensor of_level(const torch::Tensor& x_NCHW) const;

  const ParameterList* list_;
  std::int64_t unit_;
  std::int64_t outputs_;
  std::deque<Convolution> convolutions_;
  std::deque<GroupNorm> norms_;  // v2
  std::optional<Convolution> last_;
};

struct LevelSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// For one image; 2 FLOPs a multiply-add.
struct RetinaNetFlops {
  double backbone_and_pyramid = 0;
  double heads = 0;
  double fixed = 0;       // of the backbone's part that does not train: no gradient passes it
  double recomputed = 0;  // of what activation checkpointing runs again: the backbone's blocks that train
  [[nodiscard]] double forward() const { return backbone_and_pyramid + heads; }
};

class RetinaNet {
 public:
  struct Output {
    torch::Tensor logits_NAK;
    torch::Tensor deltas_NA4;
  };

  RetinaNet(ParameterList& list, const RetinaNetConfig& config);
  /// Images of any size; fp32 results whatever the type of compute.
  [[nodiscard]] Output forward(const torch::Tensor& images_NCHW, const VisionPass& pass) const;
  [[nodiscard]] std::vector<LevelSize> levels(std::int64_t height, std::int64_t width) const;
  [[nodiscard]] RetinaNetFlops flops(std::int64_t height, std::int64_t width) const;

 private:
  const ParameterList* list_;
  ResNet body_;
  FeaturePyramid pyramid_;
  RetinaNetHead classes_;
  RetinaNetHead boxes_;
};

}  // namespace shardmark::model
