#pragma once
// What decoder-only language models are made of, single-device. Products run in the type of the parameters (fp32, bf16);
// statistics of norms, rotation and softmax in fp32.
// Letters: N rows, T positions, C hidden width, H query heads, K key and value heads, D width of a head, M MLP width.

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layers.hpp"
#include "model/lora.hpp"
#include "model/parameter.hpp"

namespace shardmark::model {

/// y = x W^T without bias, and what an adapter adds. Weight (O, I) starts normal with deviation 0.02, as language models do.
class Projection {
 public:
  Projection(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out,
             const LoraConfig& lora = {});
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x, const ForwardKey& key) const;

 private:
  Parameter* weight_;
  std::optional<LoraAdapter> adapter_;
};

/// x / sqrt(mean(x^2) + eps) over the last dimension in fp32, cast to the type of x, times a weight that starts at 1.
class RmsNorm {
 public:
  RmsNorm(ParameterList& list, const std::string& name, std::int64_t width, double epsilon);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x) const;

 private:
  Parameter* weight_;
  double epsilon_;
};

/// theta^(-2i/D) for i < D/2, in fp32 as the public implementation computes them.
[[nodiscard]] torch::Tensor rotary_frequencies(double theta, std::int64_t head_width);

/// How the Llama 3 models stretch plain frequencies for rows longer than `original_length`.
struct Llama3Scaling {
  double factor = 1;
  double low_turns = 1;   // fewer full turns over the original length: the frequency is divided by `factor`
  double high_turns = 4;  // more: it stays; between both it is blended linearly in the number of turns
  std::int64_t original_length = 0;
};
[[nodiscard]] torch::Tensor llama3_frequencies(const torch::Tensor& plain, const Llama3Scaling& scaling);

/// What all blocks of one pass share: made of positions and segments alone, no gradient, no parameter.
struct AttentionContext {
  torch::Tensor cos_TD;    // (T, D), or (N, 1, T, D) where rows have segments
  torch::Tensor sin_TD;    // likewise
  torch::Tensor mask_NTT;  // (N, 1, T, T) boolean, true = visible; undefined: causal over the whole row
  ForwardKey key = {};     // of what is drawn in the pass
};

/// For rows of `length` positions that each hold one text.
[[nodiscard]] AttentionContext causal_context(const torch::Tensor& frequencies, std::int64_t length);
/// For rows of several texts, `segment_ids_NT` numbering them: each sees itself alone and its positions start at 0.
[[nodiscard]] AttentionContext packed_context(const torch::Tensor& frequencies, const torch::Tensor& segment_ids_NT);

/// Widths of attention. `heads` is a multiple of `kv_heads`: that many query heads share keys and values.
struct AttentionShape {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
};

/// Causal self-attention with rotary positions. Names NAME.{q,k,v,o}_proj.weight.
class SelfAttention {
 public:
  SelfAttention(ParameterList& list, const std::string& name, const AttentionShape& shape, const LoraConfig& lora = {});
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NTC, const AttentionContext& context) const;

 private:
  AttentionShape shape_;
  Projection q_;
  Projection k_;
  Projection v_;
  Projection o_;
};

/// down(silu(gate x) * up x). Names NAME.{gate,up,down}_proj.weight.
class GatedMlp {
 public:
  GatedMlp(ParameterList& list, const std::string& name, std::int64_t hidden, std::int64_t width, const LoraConfig& lora = {});
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NTC, const ForwardKey& key) const;

 private:
  Projection gate_;
  Projection up_;
  Projection down_;
};

}  // namespace shardmark::model
