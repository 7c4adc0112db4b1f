#include "model/fpn.hpp"

#include <fmt/format.h>

#include "model/unit.hpp"

namespace shardmark::model {
namespace {

constexpr std::size_t kInputs = 3;

Convolution convolution(ParameterList& list, const std::string& name, const ConvolutionShape& shape) {
  return {list, name, shape, kaiming_uniform(shape), 0.0};
}

std::deque<Convolution> convolutions(ParameterList& list, const std::string& name,
                                     const std::vector<ConvolutionShape>& shapes) {
  std::deque<Convolution> made;
  for (const auto& shape : shapes) {
    made.push_back(convolution(list, fmt::format("{}.{}.0", name, made.size()), shape));
  }
  return made;
}

}  // namespace

FeaturePyramid::FeaturePyramid(ParameterList& list, const std::string& name, const std::array<std::int64_t, 3>& channels_in,
                               std::int64_t channels, P6From p6_from)
    : list_(&list),
      unit_(list.begin_unit(name)),
      p6_from_(p6_from),
      inner_(
          convolutions(list, name + ".inner_blocks",
                       {{channels_in[0], channels, 1, 1}, {channels_in[1], channels, 1, 1}, {channels_in[2], channels, 1, 1}})),
      layer_(convolutions(list, name + ".layer_blocks", std::vector<ConvolutionShape>(kInputs, {channels, channels, 3, 1}))),
      p6_(convolution(list, name + ".extra_blocks.p6", {p6_from == P6From::c5 ? channels_in[2] : channels, channels, 3, 2})),
      p7_(convolution(list, name + ".extra_blocks.p7", {channels, channels, 3, 2})) {}

std::vector<torch::Tensor> FeaturePyramid::forward(const std::vector<torch::Tensor>& features) const {
  return run_unit_of_many(*list_, unit_, features, [&](const std::vector<torch::Tensor>& cs) {
    std::vector<torch::Tensor> ps(kInputs);
    torch::Tensor above;
    for (std::size_t i = kInputs; i-- > 0;) {
      torch::Tensor inner = inner_[i].forward(cs[i]);
      if (above.defined()) {
        inner = inner + at::upsample_nearest2d(above, inner.sizes().slice(2));
      }
      ps[i] = layer_[i].forward(inner);
      above = inner;
    }
    ps.push_back(p6_.forward(p6_from_ == P6From::c5 ? cs.back() : ps.back()));
    ps.push_back(p7_.forward(at::relu(ps.back())));
    return ps;
  });
}

std::vector<ConvolutionCost> FeaturePyramid::costs(const std::vector<ConvolutionCost>& features) const {
  std::vector<ConvolutionCost> outputs;
  double multiply_adds = 0;
  const auto run = [&](const Convolution& step, ConvolutionCost at) {
    at.multiply_adds = 0;
    step.add_to(at);
    multiply_adds += at.multiply_adds;
    return at;
  };
  for (std::size_t i = 0; i < kInputs; ++i) {
    outputs.push_back(run(layer_[i], run(inner_[i], features[i])));
  }
  outputs.push_back(run(p6_, outputs.back()));
  outputs.push_back(run(p7_, outputs.back()));
  outputs.back().multiply_adds = multiply_adds;
  return outputs;
}

}  // namespace shardmark::model
