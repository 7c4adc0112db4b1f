#pragma once
// What the vector transformer is made of: post-norm blocks over sequences of length 1. Letters: N rows, C width, M MLP width.

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "model/layers.hpp"
#include "model/parameter.hpp"

namespace shardmark::model {

/// (x - mean) / sqrt(variance + 1e-5) over the last dimension, times a weight that starts at 1, plus a bias that starts at 0.
class LayerNorm {
 public:
  LayerNorm(ParameterList& list, const std::string& name, std::int64_t width);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NC) const;

 private:
  Parameter* weight_;
  Parameter* bias_;
};

/// Multi-head self-attention of a sequence of length 1. With one key the softmax is 1 whatever query and key are: the output is
/// the projected value, of any number of heads, and the gradients of the query and key thirds of NAME.in_proj_{weight,bias} are
/// exactly zero. They are parameters like the others (an optimizer's weight decay moves them), but nothing multiplies by them.
class SingleKeyAttention {
 public:
  SingleKeyAttention(ParameterList& list, const std::string& name, std::int64_t width);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NC) const;

 private:
  Parameter* in_weight_;  // (3C, C): query, key, value
  Parameter* in_bias_;    // (3C)
  Linear out_;
};

/// norm1(x + attention(x)), then norm2(x + mlp(x)) with mlp = Linear, GELU by the error function, Linear.
class EncoderBlock {
 public:
  EncoderBlock(ParameterList& list, const std::string& name, std::int64_t width, std::int64_t mlp_width);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NC) const;

 private:
  SingleKeyAttention attention_;
  LayerNorm norm1_;
  LayerNorm norm2_;
  Linear widen_;
  Linear narrow_;
};

}  // namespace shardmark::model
