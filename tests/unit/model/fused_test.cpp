// Fused operations inside autograd against the chains of LibTorch's operations in double: strides, tables, frozen inputs.

#include "model/fused.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace shardmark::model {
namespace {

using Operation = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

/// Strides in the order opposite to a contiguous tensor's, as views leave them.
torch::Tensor direction_of(const torch::Tensor& output) {
  const std::vector<std::int64_t> reversed(output.sizes().rbegin(), output.sizes().rend());
  std::vector<std::int64_t> axes(reversed.size());
  std::iota(axes.rbegin(), axes.rend(), 0);
  return at::cos(at::arange(output.numel(), output.options())).view(reversed).permute(axes);
}

/// The output and the gradients of all inputs for one direction of the output.
std::vector<torch::Tensor> with_gradients(const Operation& operation, std::vector<torch::Tensor> inputs) {
  for (auto& input : inputs) {
    input = input.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  }
  const torch::Tensor output = operation(inputs);
  torch::autograd::backward({output}, {direction_of(output)});
  std::vector<torch::Tensor> results{output.detach()};
  for (const auto& input : inputs) {
    results.push_back(input.grad());
  }
  return results;
}

/// Relative L2 distance of each result from the chain's in double, where single roundings and short sums average out: 2^-20 is
/// sixteen roundings of fp32.
void compare(const Operation& fused, const Operation& chain, const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> wide;
  for (const auto& input : inputs) {
    wide.push_back(input.to(at::kDouble));
  }
  const auto found = with_gradients(fused, inputs);
  const auto expected = with_gradients(chain, wide);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << i;
    const double distance = (found[i].to(at::kDouble) - expected[i]).norm().item<double>();
    EXPECT_LE(distance, 0x1.0p-20 * expected[i].norm().item<double>()) << "result " << i;
  }
}

struct FusedTest : ::testing::Test {
  FusedTest() { at::manual_seed(3); }
};

TEST_F(FusedTest, TheNormAndItsGradients) {
  const Operation fused = [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); };
  const Operation chain = [](const auto& in) { return in[0] * at::rsqrt(in[0].square().mean(-1, true) + 1e-5) * in[1]; };
  compare(fused, chain, {at::randn({2, 5, 48}), at::randn({48})});
  compare(fused, chain, {at::randn({48, 5, 2}).transpose(0, 2), at::randn({48})});  // strides of another order
}

TEST_F(FusedTest, TheNormOfAFrozenWeightOrInputHasTheOtherGradientAlone) {
  const torch::Tensor x = at::randn({4, 8}).requires_grad_();
  const torch::Tensor weight = at::randn({8});
  rms_norm(x, weight, 1e-5).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const torch::Tensor trained = at::randn({8}).requires_grad_();
  rms_norm(x.detach(), trained, 1e-5).sum().backward();
  EXPECT_TRUE(trained.grad().defined());
}

TEST_F(FusedTest, RotationWithOneTableForAllTextsOrOneForEach) {
  const torch::Tensor angles = at::randn({3, 1, 5, 4});
  const torch::Tensor both = at::cat({angles, angles}, -1);
  for (const torch::Tensor& table : {both[1][0], both}) {
    const torch::Tensor cos = table.cos().contiguous();
    const torch::Tensor sin = table.sin().contiguous();
    const Operation fused = [&](const auto& in) { return rotate(in[0], cos, sin); };
    const Operation chain = [&](const auto& in) {
      const torch::Tensor x_NHTD = in[0].transpose(1, 2);
      const auto halves = x_NHTD.chunk(2, -1);
      const torch::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
      return (x_NHTD * cos.to(at::kDouble) + turned * sin.to(at::kDouble)).transpose(1, 2);
    };
    compare(fused, chain, {at::randn({3, 5, 2, 8})});
    compare(fused, chain, {at::randn({3, 2, 5, 8}).transpose(1, 2)});
  }
  EXPECT_ANY_THROW((void)rotate(at::randn({3, 5, 2, 8}), at::randn({4, 8}), at::randn({4, 8})));
}

TEST_F(FusedTest, TheGateAndItsGradients) {
  const Operation fused = [](const auto& in) { return swiglu(in[0], in[1]); };
  compare(fused, [](const auto& in) { return swiglu_chain(in[0], in[1]); }, {at::randn({3, 7, 33}) * 4, at::randn({3, 7, 33})});
  compare(fused, [](const auto& in) { return swiglu_chain(in[0], in[1]); },
          {at::randn({33, 7}).transpose(0, 1), at::randn({7, 33})});
  compare(fused, [](const auto& in) { return swiglu_chain(in[0], in[1]); },
          {at::randn({7, 33}), at::randn({33, 7}).transpose(0, 1)});
}

/// In bf16 chains round after each operation and fused loops less often: a norm and a gate of equal inputs lie within two
/// roundings to bf16 (2^-8 each) of one another.
TEST_F(FusedTest, InBf16ResultsLieWithinTwoRoundingsOfTheChains) {
  const auto near = [](const torch::Tensor& found, const torch::Tensor& expected) {
    EXPECT_EQ(found.scalar_type(), at::kBFloat16);
    const double distance = (found.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>();
    EXPECT_LE(distance, 2 * 0x1.0p-8 * expected.to(at::kDouble).norm().item<double>());
  };
  const torch::Tensor x = at::randn({4, 6, 32}).to(at::kBFloat16);
  const torch::Tensor y = at::randn({4, 6, 32}).to(at::kBFloat16);
  const torch::Tensor weight = at::randn({32}).to(at::kBFloat16);
  near(rms_norm(x, weight, 1e-5), rms_norm_chain(x, weight, 1e-5));
  near(swiglu(x, y), swiglu_chain(x, y));
  const torch::Tensor angles = at::randn({6, 4});
  const torch::Tensor both = at::cat({angles, angles}, -1);
  const torch::Tensor heads = x.view({4, 6, 4, 8});
  near(rotate(heads, both.cos(), both.sin()), rotate_chain(heads, both.cos(), both.sin()));
}

TEST_F(FusedTest, WithoutAGraphResultsAreTheSameBits) {
  const torch::Tensor x = at::randn({4, 16}).requires_grad_();
  const torch::Tensor with_graph = swiglu(rms_norm(x, at::ones({16}), 1e-5), x);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(with_graph, swiglu(rms_norm(x, at::ones({16}), 1e-5), x)));
}

}  // namespace
}  // namespace shardmark::model
