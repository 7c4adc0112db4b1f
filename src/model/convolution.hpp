#pragma once
// Convolutions and group normalisation of vision models, and what they cost. Single-device code, as layers.hpp.
// Letters: N images, C channels, H and W pixels.

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>

#include "model/parameter.hpp"

namespace shardmark::model {

/// What a stretch of a model makes of an image's size, and its multiply-adds for one image, counted by its convolutions.
struct ConvolutionCost {
  std::int64_t height = 0;
  std::int64_t width = 0;
  double multiply_adds = 0;
};

struct ConvolutionShape {
  std::int64_t channels_in = 0;
  std::int64_t channels_out = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
};

/// Square kernel, padded by half of it, so that stride 1 keeps the size.
class Convolution {
 public:
  /// A bias starts at the value given; without one there is none.
  Convolution(ParameterList& list, const std::string& name, const ConvolutionShape& shape, Init weight,
              std::optional<double> bias = std::nullopt);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NCHW) const;
  /// Moves `cost` behind this convolution.
  void add_to(ConvolutionCost& cost) const;

 private:
  ConvolutionShape shape_;
  Parameter* weight_;  // (out, in, kernel, kernel)
  Parameter* bias_ = nullptr;
};

/// Kaiming's normal values for a ReLU behind, by the fan out.
[[nodiscard]] Init kaiming_normal(const ConvolutionShape& shape);
/// Kaiming's uniform values without a gain, by the fan in.
[[nodiscard]] Init kaiming_uniform(const ConvolutionShape& shape);

/// Mean 0 and variance 1 over each image's groups of channels, then weight and bias of each channel.
class GroupNorm {
 public:
  GroupNorm(ParameterList& list, const std::string& name, std::int64_t channels, std::int64_t groups);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NCHW) const;

 private:
  std::int64_t groups_;
  Parameter* weight_;
  Parameter* bias_;
};

}  // namespace shardmark::model
