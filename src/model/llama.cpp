#include "model/llama.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/linear_cross_entropy.hpp"
#include "model/unit.hpp"

namespace shardmark::model {
namespace {

constexpr std::int64_t kRoot = 0;
constexpr double kInitialDeviation = 0.02;

}  // namespace

Llama::Block::Block(ParameterList& list, const std::string& name, const LlamaConfig& config)
    : unit(list.begin_unit(name)),
      attention_norm(list, name + ".input_layernorm", config.hidden_size, config.rms_norm_eps),
      attention(list, name + ".self_attn",
                {config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim}, config.lora),
      mlp_norm(list, name + ".post_attention_layernorm", config.hidden_size, config.rms_norm_eps),
      mlp(list, name + ".mlp", config.hidden_size, config.intermediate_size, config.lora) {}

torch::Tensor Llama::Block::forward(const torch::Tensor& x_NTC, const AttentionContext& context) const {
  const torch::Tensor attended_NTC = x_NTC + attention.forward(attention_norm.forward(x_NTC), context);
  return attended_NTC + mlp.forward(mlp_norm.forward(attended_NTC), context.key);
}

Llama::Llama(ParameterList& list, const LlamaConfig& config, torch::Tensor frequencies)
    : list_(&list),
      config_(config),
      frequencies_(std::move(frequencies)),
      embedding_(
          &list.add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}, Init::normal(0, kInitialDeviation))),
      norm_(list, "model.norm", config.hidden_size, config.rms_norm_eps),
      head_(config.tie_word_embeddings
                ? embedding_
                : &list.add("lm_head.weight", {config.vocab_size, config.hidden_size}, Init::normal(0, kInitialDeviation))) {
  SM_CHECK(embedding_->unit == kRoot, "the root unit holds the embedding: declare the model first");
  SM_CHECK(frequencies_.numel() == config.head_dim / 2, "one rotary frequency for each pair of a head");
  for (Parameter& parameter : list.parameters()) {
    parameter.behind_units = &parameter != embedding_;  // the final norm, and a head that is not the embedding
  }
  if (config.tie_word_embeddings) {
    embedding_->also_named = "lm_head.weight";
  }
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    blocks_.emplace_back(list, "model.layers." + std::to_string(layer), config);
  }
  if (config.lora.rank > 0) {
    for (Parameter& parameter : list.parameters()) {
      parameter.trainable = parameter.is_adapter;
    }
  }
}

torch::Tensor Llama::hidden(const torch::Tensor& input_ids_NT, const TokenBatch& batch) const {
  if (frequencies_.device() != input_ids_NT.device()) {
    frequencies_ = frequencies_.to(input_ids_NT.device());  // once
  }
  AttentionContext context = batch.segment_ids_NT.defined() ? packed_context(frequencies_, batch.segment_ids_NT)
                                                            : causal_context(frequencies_, input_ids_NT.size(1));
  context.key = batch.key;
  torch::Tensor x_NTC = at::embedding(embedding_->value, input_ids_NT);
  for (const Block& block : blocks_) {
    x_NTC = run_unit(
        *list_, block.unit, x_NTC, [&block, context](const torch::Tensor& input) { return block.forward(input, context); },
        /*checkpointable=*/true);
  }
  return norm_.forward(x_NTC);
}

torch::Tensor Llama::head(const torch::Tensor& x_NTC) const {
  return at::linear(x_NTC, head_->value);
}

torch::Tensor Llama::cross_entropy_sum(const torch::Tensor& x_NTC, const torch::Tensor& labels_NT) const {
  const std::int64_t length = x_NTC.size(1);
  const torch::Tensor states = x_NTC.slice(1, 0, length - 1).reshape({-1, config_.hidden_size});
  const torch::Tensor wanted = labels_NT.slice(1, 1).reshape(-1);
  return linear_cross_entropy_sum(states, head_->value, wanted, rows_of_a_piece(head_->value));
}

torch::Tensor Llama::loss_sum(const TokenBatch& batch) const {
  return run_unit(*list_, kRoot, batch.input_ids_NT, [&](const torch::Tensor& input_ids_NT) {
    return cross_entropy_sum(hidden(input_ids_NT, batch), batch.labels_NT);
  });
}

torch::Tensor Llama::logits(const TokenBatch& batch) const {
  return run_unit(*list_, kRoot, batch.input_ids_NT,
                  [&](const torch::Tensor& input_ids_NT) { return head(hidden(input_ids_NT, batch)); });
}

std::int64_t Llama::matmul_parameters() const {
  std::int64_t sum = head_ == embedding_ ? head_->numel() : 0;
  for (const auto& parameter : list_->parameters()) {
    const bool looked_up = &parameter == embedding_;
    sum += parameter.is_matrix() && !looked_up && !parameter.is_adapter ? parameter.numel() : 0;
  }
  return sum;
}

}  // namespace shardmark::model
