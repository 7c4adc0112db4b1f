#include "model/convolution.hpp"

#include <cmath>

#include "base/error.hpp"

namespace shardmark::model {
namespace {

constexpr double kEpsilon = 1e-5;

}  // namespace

Init kaiming_normal(const ConvolutionShape& shape) {
  return Init::normal(0, std::sqrt(2.0 / static_cast<double>(shape.channels_out * shape.kernel * shape.kernel)));
}

Init kaiming_uniform(const ConvolutionShape& shape) {
  const double bound = std::sqrt(3.0 / static_cast<double>(shape.channels_in * shape.kernel * shape.kernel));
  return Init::uniform(-bound, bound);
}

Convolution::Convolution(ParameterList& list, const std::string& name, const ConvolutionShape& shape, Init weight,
                         std::optional<double> bias)
    : shape_(shape),
      weight_(&list.add(name + ".weight", {shape.channels_out, shape.channels_in, shape.kernel, shape.kernel}, weight)) {
  if (bias) {
    bias_ = &list.add(name + ".bias", {shape.channels_out}, Init::constant(*bias));
  }
}

torch::Tensor Convolution::forward(const torch::Tensor& x_NCHW) const {
  const std::int64_t padding = shape_.kernel / 2;
  return at::conv2d(x_NCHW, weight_->value, bias_ != nullptr ? bias_->value : torch::Tensor(), {shape_.stride, shape_.stride},
                    at::IntArrayRef{padding, padding});
}

void Convolution::add_to(ConvolutionCost& cost) const {
  const auto behind = [&](std::int64_t side) { return (side + 2 * (shape_.kernel / 2) - shape_.kernel) / shape_.stride + 1; };
  cost.height = behind(cost.height);
  cost.width = behind(cost.width);
  cost.multiply_adds +=
      static_cast<double>(weight_->numel()) * static_cast<double>(cost.height) * static_cast<double>(cost.width);
}

GroupNorm::GroupNorm(ParameterList& list, const std::string& name, std::int64_t channels, std::int64_t groups)
    : groups_(groups),
      weight_(&list.add(name + ".weight", {channels}, Init::constant(1))),
      bias_(&list.add(name + ".bias", {channels}, Init::constant(0))) {
  SM_CHECK(groups >= 1 && channels % groups == 0, "groups do not divide the channels of " + name);
}

torch::Tensor GroupNorm::forward(const torch::Tensor& x_NCHW) const {
  return at::group_norm(x_NCHW, groups_, weight_->value, bias_->value, kEpsilon);
}

}  // namespace shardmark::model
