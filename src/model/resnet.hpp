#pragma once
// The backbone of image detectors: ResNet of bottleneck blocks, the stride on the 3 x 3 convolution. State names as in the
// public implementation. Letters as in convolution.hpp.

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/batch_norm.hpp"
#include "model/convolution.hpp"

namespace shardmark::model {

inline constexpr std::size_t kStages = 4;

struct ResNetShape {
  std::array<std::int64_t, kStages> blocks{};  // of each stage
  std::int64_t stem = 0;                       // channels; the stages put out 4, 8, 16 and 32 times as many
  BatchStatistics statistics = BatchStatistics::local;

  [[nodiscard]] std::int64_t channels_of(std::size_t stage) const { return (4 * stem) << stage; }
};

class Bottleneck {
 public:
  struct Shape {
    std::int64_t channels_in = 0;
    std::int64_t width = 0;  // of the 3 x 3 convolution; four times as many channels come out
    std::int64_t stride = 1;
    bool projects = false;  // the way around is a convolution too
  };
  Bottleneck(ParameterList& list, const std::string& name, const Shape& shape, BatchStatistics statistics);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const;
  void add_to(ConvolutionCost& cost) const;

 private:
  struct Layer {
    Layer(ParameterList& list, const std::string& convolution, const std::string& norm, const ConvolutionShape& shape,
          BatchStatistics statistics);
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const;
    Convolution convolution;
    BatchNorm norm;
  };
  Layer first_, second_, third_;
  std::optional<Layer> around_;
};

/// Stem and each block are units of their own. With frozen statistics stem and first stage do not train.
class ResNet {
 public:
  ResNet(ParameterList& list, const std::string& name, const ResNetShape& shape);
  /// Outputs of the stages 2, 3 and 4: C3, C4, C5.
  [[nodiscard]] std::vector<torch::Tensor> forward(const torch::Tensor& images_NCHW, const VisionPass& pass) const;

  /// For one image: the three outputs' sizes, each with the multiply-adds up to it.
  [[nodiscard]] std::vector<ConvolutionCost> costs(std::int64_t height, std::int64_t width) const;
  [[nodiscard]] double stem_multiply_adds(std::int64_t height, std::int64_t width) const;
  /// Of what does not train.
  [[nodiscard]] double fixed_multiply_adds(std::int64_t height, std::int64_t width) const;

 private:
  struct Unit {
    std::int64_t index = 0;
    std::size_t stage = 0;
    Bottleneck block;
  };
  [[nodiscard]] bool ends_stage(std::size_t block) const {
    return block + 1 == blocks_.size() || blocks_[block + 1].stage != blocks_[block].stage;
  }
  void walk(ConvolutionCost& cost, const std::function<void(std::size_t stage)>& behind_stage) const;

  const ParameterList* list_;
  bool frozen_;
  std::int64_t stem_unit_;
  Convolution stem_;
  BatchNorm stem_norm_;
  std::deque<Unit> blocks_;  // addresses stay valid: backward may run a block again
};

}  // namespace shardmark::model
