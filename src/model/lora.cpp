#include "model/lora.hpp"

#include <cmath>

namespace shardmark::model {
namespace {

Parameter& declare(ParameterList& list, const std::string& name, std::vector<std::int64_t> shape, const Init& init) {
  auto& parameter = list.add(name, std::move(shape), init);
  parameter.is_adapter = true;
  return parameter;
}

}  // namespace

LoraAdapter::LoraAdapter(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out,
                         const LoraConfig& config)
    : a_(&declare(
          list, kAdapterPrefix + name + ".lora_A.weight", {config.rank, width_in},
          Init::uniform(-1.0 / std::sqrt(static_cast<double>(width_in)), 1.0 / std::sqrt(static_cast<double>(width_in))))),
      b_(&declare(list, kAdapterPrefix + name + ".lora_B.weight", {width_out, config.rank}, Init::constant(0))),
      scale_(config.alpha / static_cast<double>(config.rank)),
      dropout_(name, config.dropout) {}

torch::Tensor LoraAdapter::forward(const torch::Tensor& x, const ForwardKey& key) const {
  const torch::Tensor in = dropout_.forward(x.to(a_->value.scalar_type()), key);
  return at::linear(at::linear(in, a_->value), b_->value) * scale_;
}

}  // namespace shardmark::model
