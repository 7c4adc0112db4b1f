#include "model/encoder.hpp"

#include <gtest/gtest.h>

#include "model/parameter.hpp"

namespace shardmark::model {
namespace {

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kHeads = 4;

/// Random values everywhere, biases too.
void bind(ParameterList& list) {
  for (auto& parameter : list.parameters()) {
    parameter.value = at::randn(parameter.shape, at::kFloat).mul_(0.3).requires_grad_();
  }
}

/// Attention as written down, over (N, 1, C): heads, scores, softmax and all.
torch::Tensor attention_in_full(ParameterList& list, const torch::Tensor& x_NC) {
  const auto& p = list.parameters();
  const torch::Tensor projected = at::linear(x_NC.unsqueeze(1), p[0].value, p[1].value);
  std::vector<torch::Tensor> thirds;
  for (const auto& third : projected.chunk(3, -1)) {
    thirds.push_back(third.reshape({-1, 1, kHeads, kWidth / kHeads}).transpose(1, 2));
  }
  const torch::Tensor scores = at::matmul(thirds[0], thirds[1].transpose(2, 3)) / 2.0;  // sqrt(4)
  const torch::Tensor mixed = at::matmul(at::softmax(scores, -1), thirds[2]).transpose(1, 2).reshape({-1, kWidth});
  return at::linear(mixed, p[2].value, p[3].value);
}

TEST(SingleKeyAttention, IsAttentionWithTheSameGradients) {
  torch::manual_seed(1);
  ParameterList list;
  const SingleKeyAttention attention(list, "attention", kWidth);
  bind(list);
  ASSERT_EQ(list.parameters()[0].name, "attention.in_proj_weight");
  ASSERT_EQ(list.parameters()[2].name, "attention.out_proj.weight");
  const torch::Tensor x = at::randn({5, kWidth}).requires_grad_();
  const torch::Tensor factor = at::randn({5, kWidth});
  const auto run = [&](const torch::Tensor& y) {
    (y * factor).sum().backward();
    std::vector<torch::Tensor> gradients{x.grad().clone()};
    x.mutable_grad().reset();
    for (auto& parameter : list.parameters()) {
      gradients.push_back(parameter.value.grad().clone());
      parameter.value.mutable_grad().reset();
    }
    return gradients;
  };
  const torch::Tensor found = attention.forward(x);
  const torch::Tensor expected = attention_in_full(list, x);
  // The same products; sums of 16 terms in an order of the library's choice: some roundings of fp32.
  EXPECT_TRUE(found.allclose(expected, 1e-5, 1e-6));
  const auto mine = run(found);
  const auto full = run(expected);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(mine[i].allclose(full[i], 1e-5, 1e-6)) << i;
  }
  for (const std::size_t i : {1U, 2U}) {  // in_proj_weight, in_proj_bias
    EXPECT_EQ(mine[i].narrow(0, 0, 2 * kWidth).abs().max().item<double>(), 0);
    EXPECT_GT(mine[i].narrow(0, 2 * kWidth, kWidth).abs().min().item<double>(), 0);
  }
}

TEST(SingleKeyAttention, StartsAsThePublicOne) {
  ParameterList list;
  const SingleKeyAttention attention(list, "a", 512);
  const auto& p = list.parameters();
  EXPECT_NEAR(p[0].init.b, 0.0541266, 1e-7) << "Xavier's bound of (1536, 512)";
  EXPECT_EQ(p[0].init.a, -p[0].init.b);
  EXPECT_EQ(p[1].init.kind, Init::Kind::constant);
  EXPECT_NEAR(p[2].init.b, 0.0441942, 1e-7) << "Linear's 1 / sqrt(512)";
  EXPECT_EQ(p[3].name, "a.out_proj.bias");
  EXPECT_EQ(p[3].init.kind, Init::Kind::constant) << "attention's biases start at zero";
  EXPECT_EQ(p[3].init.a, 0);
}

}  // namespace
}  // namespace shardmark::model
