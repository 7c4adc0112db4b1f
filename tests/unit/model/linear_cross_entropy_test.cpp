// The head and its loss in pieces against the same written as a chain in double.

#include "model/linear_cross_entropy.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace shardmark::model {
namespace {

constexpr std::int64_t kRows = 13;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kVocabulary = 31;

struct Case {
  explicit Case(std::vector<std::int64_t> targets) : targets_R(at::tensor(targets)) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    x_RC = at::randn({static_cast<std::int64_t>(targets.size()), kWidth}, generator);
    weight_VC = at::randn({kVocabulary, kWidth}, generator);
  }

  struct Result {
    torch::Tensor loss;
    torch::Tensor dx;
    torch::Tensor dweight;
  };
  [[nodiscard]] Result in_pieces(std::int64_t rows_at_once) const {
    const torch::Tensor x = x_RC.clone().requires_grad_();
    const torch::Tensor weight = weight_VC.clone().requires_grad_();
    const torch::Tensor loss = linear_cross_entropy_sum(x, weight, targets_R, rows_at_once);
    torch::autograd::backward({loss}, {at::full({}, 0.25F)});
    return {loss, x.grad(), weight.grad()};
  }
  [[nodiscard]] Result chain() const {
    const torch::Tensor x = x_RC.to(at::kDouble).requires_grad_();
    const torch::Tensor weight = weight_VC.to(at::kDouble).requires_grad_();
    const torch::Tensor loss = at::cross_entropy_loss(at::linear(x, weight), targets_R, {}, at::Reduction::Sum);
    torch::autograd::backward({loss}, {at::full({}, 0.25, at::kDouble)});
    return {loss, x.grad(), weight.grad()};
  }

  torch::Tensor targets_R;
  torch::Tensor x_RC;
  torch::Tensor weight_VC;
};

double distance(const torch::Tensor& found, const torch::Tensor& wanted) {
  return (found.to(at::kDouble) - wanted).abs().max().item<double>();
}

std::vector<std::int64_t> some_targets() {
  std::vector<std::int64_t> targets(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    targets[static_cast<std::size_t>(row)] = row % 4 == 1 ? kNoTarget : row * 7 % kVocabulary;
  }
  return targets;
}

TEST(LinearCrossEntropy, PiecesOfAnySizeGiveTheChainsLossAndGradients) {
  const Case given(some_targets());
  const auto wanted = given.chain();
  for (const std::int64_t rows_at_once : {1, 2, 5, 13, 100}) {
    const auto found = given.in_pieces(rows_at_once);
    // fp32 sums of up to 31 terms below 20, then of 13 losses: a few hundred roundings of 2^-24 of 40.
    EXPECT_LE(distance(found.loss, wanted.loss), 1e-4) << rows_at_once;
    EXPECT_LE(distance(found.dx, wanted.dx), 1e-5) << rows_at_once;
    EXPECT_LE(distance(found.dweight, wanted.dweight), 1e-5) << rows_at_once;
  }
}

TEST(LinearCrossEntropy, NoTargetAtAllIsZeroWithZeroGradients) {
  const Case given(std::vector<std::int64_t>(kRows, kNoTarget));
  const auto found = given.in_pieces(4);
  EXPECT_EQ(found.loss.item<double>(), 0);
  EXPECT_EQ(found.dx.abs().max().item<double>(), 0);
  EXPECT_EQ(found.dweight.abs().max().item<double>(), 0);
}

TEST(LinearCrossEntropy, RowsWithoutTargetDoNotSpreadWhatIsNotFinite) {
  Case given(some_targets());
  given.x_RC[1].fill_(std::numeric_limits<float>::infinity());  // has no target
  const auto found = given.in_pieces(4);
  EXPECT_TRUE(std::isfinite(found.loss.item<double>()));
  Case counted(some_targets());
  counted.x_RC[0].fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(std::isfinite(counted.in_pieces(4).loss.item<double>()));
}

TEST(LinearCrossEntropy, AFrozenHeadGetsNoGradientAndNoGradientsAreMadeWithoutAGraph) {
  const Case given(some_targets());
  const torch::Tensor x = given.x_RC.clone().requires_grad_();
  const torch::Tensor loss = linear_cross_entropy_sum(x, given.weight_VC, given.targets_R, 4);
  loss.backward();
  EXPECT_LE(distance(x.grad() * 0.25, given.chain().dx), 1e-5);
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(linear_cross_entropy_sum(x, given.weight_VC, given.targets_R, 4).requires_grad());
}

TEST(LinearCrossEntropy, Bf16IsRoundedInTheProductsAlone) {
  const Case given(some_targets());
  const torch::Tensor x = given.x_RC.to(at::kBFloat16);
  const torch::Tensor weight = given.weight_VC.to(at::kBFloat16);
  const torch::Tensor logits = at::linear(x, weight).to(at::kDouble);  // as stored: rounded once
  const double wanted = at::cross_entropy_loss(logits, given.targets_R, {}, at::Reduction::Sum).item<double>();
  EXPECT_NEAR(linear_cross_entropy_sum(x, weight, given.targets_R, 5).item<double>(), wanted, 1e-4);
}

}  // namespace
}  // namespace shardmark::model
