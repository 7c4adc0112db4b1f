#include "model/encoder.hpp"

#include <cmath>

namespace shardmark::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEpsilon = 1e-5;

/// x W_v^T + b_v with the last third of both. Its backward writes the other two thirds' zeros without computing them; through
/// LibTorch's slices autograd would fill and copy the whole gradient once more.
struct ValueProjection : torch::autograd::Function<ValueProjection> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_NC, const torch::Tensor& weight,
                               const torch::Tensor& bias) {
    context->save_for_backward({x_NC, weight});
    return at::linear(x_NC, values_of(weight), values_of(bias));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor& x_NC = saved[0];
    const torch::Tensor& weight = saved[1];
    const torch::Tensor& dy_NC = gradients[0];
    torch::Tensor dx_NC;
    torch::Tensor dweight;
    torch::Tensor dbias;
    if (context->needs_input_grad(0)) {
      dx_NC = at::mm(dy_NC, values_of(weight));
    }
    if (context->needs_input_grad(1)) {
      dweight = at::empty_like(weight);
      others_of(dweight).zero_();
      torch::Tensor dvalues = values_of(dweight);
      at::mm_out(dvalues, dy_NC.t(), x_NC);
    }
    if (context->needs_input_grad(2)) {
      dbias = at::empty({3 * dy_NC.size(1)}, dy_NC.options());
      others_of(dbias).zero_();
      torch::Tensor dvalues = values_of(dbias);
      at::sum_out(dvalues, dy_NC, 0);
    }
    return {dx_NC, dweight, dbias};
  }

  static torch::Tensor values_of(const torch::Tensor& thirds) { return thirds.narrow(0, 2 * third(thirds), third(thirds)); }
  static torch::Tensor others_of(const torch::Tensor& thirds) { return thirds.narrow(0, 0, 2 * third(thirds)); }
  static std::int64_t third(const torch::Tensor& thirds) { return thirds.size(0) / 3; }
};

Linear zero_biased(ParameterList& list, const std::string& name, std::int64_t width) {
  Linear linear(list, name, width, width);
  list.parameters().back().init = Init::constant(0);
  return linear;
}

}  // namespace

LayerNorm::LayerNorm(ParameterList& list, const std::string& name, std::int64_t width)
    : weight_(&list.add(name + ".weight", {width}, Init::constant(1))),
      bias_(&list.add(name + ".bias", {width}, Init::constant(0))) {}

torch::Tensor LayerNorm::forward(const torch::Tensor& x_NC) const {
  return at::layer_norm(x_NC, {x_NC.size(-1)}, weight_->value, bias_->value, kEpsilon);
}

SingleKeyAttention::SingleKeyAttention(ParameterList& list, const std::string& name, std::int64_t width)
    // Xavier's rule over all three as one matrix, as the public implementation draws them.
    : in_weight_(&list.add(
          name + ".in_proj_weight", {3 * width, width},
          Init::uniform(-std::sqrt(6.0 / static_cast<double>(4 * width)), std::sqrt(6.0 / static_cast<double>(4 * width))))),
      in_bias_(&list.add(name + ".in_proj_bias", {3 * width}, Init::constant(0))),
      out_(zero_biased(list, name + ".out_proj", width)) {}

torch::Tensor SingleKeyAttention::forward(const torch::Tensor& x_NC) const {
  return out_.forward(ValueProjection::apply(x_NC, in_weight_->value, in_bias_->value));
}

EncoderBlock::EncoderBlock(ParameterList& list, const std::string& name, std::int64_t width, std::int64_t mlp_width)
    : attention_(list, name + ".attention", width),
      norm1_(list, name + ".norm1", width),
      norm2_(list, name + ".norm2", width),
      widen_(list, name + ".mlp.0", width, mlp_width),
      narrow_(list, name + ".mlp.2", mlp_width, width) {}

torch::Tensor EncoderBlock::forward(const torch::Tensor& x_NC) const {
  const torch::Tensor mixed_NC = norm1_.forward(x_NC + attention_.forward(x_NC));
  return norm2_.forward(mixed_NC + narrow_.forward(at::gelu(widen_.forward(mixed_NC))));
}

}  // namespace shardmark::model
