#pragma once
// The Llama architecture: embedding, pre-norm decoder blocks, final norm, head. Parameter names are those of the public
// checkpoints; a tied head is stored once, as the embedding.
// Letters as in transformer.hpp, and V vocabulary.

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <string>

#include "model/parameter.hpp"
#include "model/transformer.hpp"

namespace shardmark::model {

/// Names of config.json.
struct LlamaConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = true;
  LoraConfig lora = {};  // with adapters nothing else trains
};

/// Rows of one pass. Positions of a segment start at 0.
struct TokenBatch {
  torch::Tensor input_ids_NT;    // int64
  torch::Tensor labels_NT;       // int64, beside their own token; -100 = no target. Not needed for logits.
  torch::Tensor segment_ids_NT;  // int64; undefined: every row is one segment
  ForwardKey key = {};           // of what is drawn in the pass: dropout before adapters
};

/// Unit 0 holds embedding, final norm and head, each block is a unit of its own (see unit.hpp).
class Llama {
 public:
  /// `frequencies` of the rotary positions, D/2 of them: the architecture's variants differ in these alone.
  Llama(ParameterList& list, const LlamaConfig& config, torch::Tensor frequencies);

  /// Sum over targets of the cross entropy in fp32: column t - 1 predicts the label of column t.
  [[nodiscard]] torch::Tensor loss_sum(const TokenBatch& batch) const;
  /// (N, T, V).
  [[nodiscard]] torch::Tensor logits(const TokenBatch& batch) const;

  /// Weights that every token is multiplied with: all matrices but adapters, the head counted, the look-up in the embedding
  /// not.
  [[nodiscard]] std::int64_t matmul_parameters() const;

 private:
  struct Block {
    Block(ParameterList& list, const std::string& name, const LlamaConfig& config);
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NTC, const AttentionContext& context) const;

    std::int64_t unit;
    RmsNorm attention_norm;
    SelfAttention attention;
    RmsNorm mlp_norm;
    GatedMlp mlp;
  };

  /// Output of the final norm. To be called inside the root unit.
  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& input_ids_NT, const TokenBatch& batch) const;
  [[nodiscard]] torch::Tensor head(const torch::Tensor& x_NTC) const;
  [[nodiscard]] torch::Tensor cross_entropy_sum(const torch::Tensor& x_NTC, const torch::Tensor& labels_NT) const;

  const ParameterList* list_;
  LlamaConfig config_;
  mutable torch::Tensor frequencies_;  // goes where the tokens are
  Parameter* embedding_;
  RmsNorm norm_;
  Parameter* head_;           // the embedding if tied
  std::deque<Block> blocks_;  // addresses stay valid: backward may run a block again
};

}  // namespace shardmark::model
