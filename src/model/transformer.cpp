#include "model/transformer.hpp"

#include <numbers>

#include "base/error.hpp"
#include "model/fused.hpp"

namespace shardmark::model {
namespace {

constexpr double kInitialDeviation = 0.02;  // initializer_range of the public configurations

/// Positions (T) or (N, T) to tables of cosines and sines, each angle for both halves of a head.
AttentionContext rotary_tables(const torch::Tensor& frequencies, const torch::Tensor& positions) {
  const torch::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies;
  const torch::Tensor both = at::cat({angles, angles}, -1);
  return {.cos_TD = both.cos(), .sin_TD = both.sin(), .mask_NTT = {}};
}

}  // namespace

Projection::Projection(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out,
                       const LoraConfig& lora)
    : weight_(&list.add(name + ".weight", {width_out, width_in}, Init::normal(0, kInitialDeviation))) {
  if (lora.adapts(name)) {
    adapter_.emplace(list, name, width_in, width_out, lora);
  }
}

torch::Tensor Projection::forward(const torch::Tensor& x, const ForwardKey& key) const {
  torch::Tensor y = at::linear(x, weight_->value);
  return adapter_ ? y.add_(adapter_->forward(x, key)) : y;
}

RmsNorm::RmsNorm(ParameterList& list, const std::string& name, std::int64_t width, double epsilon)
    : weight_(&list.add(name + ".weight", {width}, Init::constant(1))), epsilon_(epsilon) {}

torch::Tensor RmsNorm::forward(const torch::Tensor& x) const {
  return rms_norm(x, weight_->value, epsilon_);
}

torch::Tensor rotary_frequencies(double theta, std::int64_t head_width) {
  SM_CHECK(head_width % 2 == 0, "rotary positions need heads of an even width");
  const torch::Tensor exponents = at::arange(0, head_width, 2, at::kFloat) / static_cast<double>(head_width);
  return 1.0 / at::pow(at::Scalar(theta), exponents);
}

torch::Tensor llama3_frequencies(const torch::Tensor& plain, const Llama3Scaling& scaling) {
  SM_CHECK(scaling.original_length > 0 && scaling.high_turns > scaling.low_turns, "no range to blend frequencies in");
  constexpr double kTurn = 2 * std::numbers::pi;
  const torch::Tensor turns = static_cast<double>(scaling.original_length) / (kTurn / plain);
  const torch::Tensor kept = ((turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns)).clamp(0, 1);
  const torch::Tensor divided = plain / scaling.factor;
  // Exact at both ends: 1 x plain + 0 x divided, and the reverse.
  return kept * plain + (1 - kept) * divided;
}

AttentionContext causal_context(const torch::Tensor& frequencies, std::int64_t length) {
  return rotary_tables(frequencies, at::arange(length, frequencies.options()));
}

AttentionContext packed_context(const torch::Tensor& frequencies, const torch::Tensor& segment_ids_NT) {
  const std::int64_t length = segment_ids_NT.size(1);
  const torch::Tensor column_T = at::arange(length, segment_ids_NT.options().dtype(at::kLong));
  // A segment starts where its number differs from the one before; its positions count from there.
  const torch::Tensor differs = segment_ids_NT.slice(1, 1).ne(segment_ids_NT.slice(1, 0, length - 1));
  const torch::Tensor first = at::ones({segment_ids_NT.size(0), 1}, differs.options());
  const torch::Tensor starts_NT = std::get<0>(at::cummax(at::cat({first, differs}, 1).mul(column_T), 1));
  AttentionContext context = rotary_tables(frequencies, (column_T - starts_NT).unsqueeze(1));
  const torch::Tensor same = segment_ids_NT.unsqueeze(2).eq(segment_ids_NT.unsqueeze(1));
  context.mask_NTT = same.logical_and(column_T.unsqueeze(1).ge(column_T.unsqueeze(0))).unsqueeze(1);
  return context;
}

SelfAttention::SelfAttention(ParameterList& list, const std::string& name, const AttentionShape& shape, const LoraConfig& lora)
    : shape_(shape),
      q_(list, name + ".q_proj", shape.hidden, shape.heads * shape.head_width, lora),
      k_(list, name + ".k_proj", shape.hidden, shape.kv_heads * shape.head_width, lora),
      v_(list, name + ".v_proj", shape.hidden, shape.kv_heads * shape.head_width, lora),
      o_(list, name + ".o_proj", shape.heads * shape.head_width, shape.hidden, lora) {
  SM_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "query heads must be a multiple of key and value heads");
}

torch::Tensor SelfAttention::forward(const torch::Tensor& x_NTC, const AttentionContext& context) const {
  const std::int64_t rows = x_NTC.size(0);
  const std::int64_t length = x_NTC.size(1);
  const auto split = [&](const torch::Tensor& x, std::int64_t heads) {
    return x.view({rows, length, heads, shape_.head_width});
  };
  const auto placed = [&](const torch::Tensor& x_NTHD) {
    return rotate(x_NTHD, context.cos_TD, context.sin_TD).transpose(1, 2);
  };
  const torch::Tensor q_NHTD = placed(split(q_.forward(x_NTC, context.key), shape_.heads));
  const torch::Tensor k_NKTD = placed(split(k_.forward(x_NTC, context.key), shape_.kv_heads));
  const torch::Tensor v_NKTD = split(v_.forward(x_NTC, context.key), shape_.kv_heads).transpose(1, 2);
  std::optional<torch::Tensor> mask;
  if (context.mask_NTT.defined()) {
    mask = context.mask_NTT;
  }
  const torch::Tensor mixed_NHTD =
      at::scaled_dot_product_attention(q_NHTD, k_NKTD, v_NKTD, mask, /*dropout_p=*/0.0, /*is_causal=*/!mask,
                                       /*scale=*/std::nullopt, /*enable_gqa=*/shape_.heads != shape_.kv_heads);
  return o_.forward(mixed_NHTD.transpose(1, 2).reshape({rows, length, shape_.heads * shape_.head_width}), context.key);
}

GatedMlp::GatedMlp(ParameterList& list, const std::string& name, std::int64_t hidden, std::int64_t width,
                   const LoraConfig& lora)
    : gate_(list, name + ".gate_proj", hidden, width, lora),
      up_(list, name + ".up_proj", hidden, width, lora),
      down_(list, name + ".down_proj", width, hidden, lora) {}

torch::Tensor GatedMlp::forward(const torch::Tensor& x_NTC, const ForwardKey& key) const {
  return down_.forward(swiglu(gate_.forward(x_NTC, key), up_.forward(x_NTC, key)), key);
}

}  // namespace shardmark::model
