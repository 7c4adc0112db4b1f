#include "detection/losses.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "detection/anchors.hpp"
#include "detection/matcher.hpp"
#include "tests/support/detection_fixture.hpp"

namespace shardmark::detection {
namespace {

// Sums of some ten thousand fp32 terms of one sign, added pairwise: far below 2e-6 relative.
constexpr double kRelative = 2e-6;

torch::Tensor boxes(std::initializer_list<float> numbers) {
  return at::tensor(std::vector<float>(numbers)).view({-1, 4});
}

struct OfFixture {
  explicit OfFixture(const std::string& name)
      : fixture(name), batch(fixture.batch("mixed", 3)), anchors(make_anchors({160, 160}, testing::kFixtureLevels)) {}
  /// Of image 0, whose predictions the fixture stores.
  [[nodiscard]] Targets first() const { return make_targets({batch.truths[0]}, anchors, 1); }
  [[nodiscard]] double expected(const std::string& loss) const {
    return fixture.read("mixed." + loss + "_loss_per_image")[0].item<double>();
  }

  testing::DetectionFixture fixture;
  testing::DetectionFixture::Batch batch;
  torch::Tensor anchors;
};

TEST(Losses, OfTheFixturesFirstImage) {
  for (const auto& [name, kind] : {std::pair{"micro-retinanet", BoxLoss::giou}, std::pair{"micro-retinanet-v1", BoxLoss::l1}}) {
    const OfFixture of(name);
    const torch::Tensor classes = focal_loss(of.fixture.read("mixed.cls_logits.0").unsqueeze(0), of.first());
    const torch::Tensor places = box_loss(of.fixture.read("mixed.bbox_regression.0").unsqueeze(0), of.first(), kind);
    EXPECT_NEAR(classes.item<double>() / of.expected("class"), 1, kRelative) << name;
    EXPECT_NEAR(places.item<double>() / of.expected("box"), 1, kRelative) << name;
  }
}

/// Against the definition, element by element in double.
double focal_by_definition(double logit, bool wanted) {
  const double p = 1 / (1 + std::exp(-logit));
  return wanted ? -0.25 * std::pow(1 - p, 2) * std::log(p) : -0.75 * p * p * std::log(1 - p);
}

TEST(Losses, FocalValueAndGradientByDefinition) {
  // Classes of three anchors: class 1, background, between.
  Targets targets;
  targets.classes_NA = at::tensor(std::vector<std::int64_t>{1, kBackground, kBetween}).view({1, 3});
  targets.scale_N = at::tensor(std::vector<float>{0.5F});
  torch::Tensor logits = at::tensor(std::vector<float>{-1.5F, 0.25F, 2, -3, 7, -7}).view({1, 3, 2}).requires_grad_();
  const torch::Tensor loss = focal_loss(logits, targets);
  const auto sum = [](double a, double b, double c, double d) {
    return 0.5 * (focal_by_definition(a, false) + focal_by_definition(b, true) + focal_by_definition(c, false) +
                  focal_by_definition(d, false));
  };
  EXPECT_NEAR(loss.item<double>(), sum(-1.5, 0.25, 2, -3), 1e-6);
  loss.sum().backward();
  constexpr double kStep = 1e-6;
  const double slope = (sum(-1.5, 0.25 + kStep, 2, -3) - sum(-1.5, 0.25 - kStep, 2, -3)) / (2 * kStep);
  const double other = (sum(-1.5, 0.25, 2 + kStep, -3) - sum(-1.5, 0.25, 2 - kStep, -3)) / (2 * kStep);
  EXPECT_NEAR(logits.grad()[0][0][1].item<double>(), slope, 1e-6);
  EXPECT_NEAR(logits.grad()[0][1][0].item<double>(), other, 1e-6);
  EXPECT_EQ(logits.grad()[0][2][0].item<double>(), 0);
  EXPECT_EQ(logits.grad()[0][2][1].item<double>(), 0);
}

TEST(Losses, FocalStaysFiniteForExtremeLogits) {
  Targets targets;
  targets.classes_NA = at::tensor(std::vector<std::int64_t>{0, kBackground}).view({1, 2});
  targets.scale_N = at::ones({1});
  torch::Tensor logits = at::tensor(std::vector<float>{-2e4F, 3e4F}).view({1, 2, 1}).requires_grad_();
  const torch::Tensor loss = focal_loss(logits, targets);
  EXPECT_EQ(loss.item<double>(), 0.25 * 2e4 + 0.75 * 3e4);
  loss.sum().backward();
  EXPECT_EQ(logits.grad()[0][0].item<double>(), -0.25);
  EXPECT_EQ(logits.grad()[0][1].item<double>(), 0.75);
}

TEST(Losses, GeneralizedOverlapOfKnownPairs) {
  // Equal; beside each other with a gap as wide as they are: 1 + (3 - 2) / 3.
  const torch::Tensor found = generalized_iou_loss(boxes({0, 0, 2, 2, 0, 0, 1, 1}), boxes({0, 0, 2, 2, 2, 0, 3, 1}));
  EXPECT_NEAR(found[0].item<double>(), 0, 1e-6);
  EXPECT_NEAR(found[1].item<double>(), 4.0 / 3.0, 1e-6);
}

TEST(Losses, WithoutBoxesOnlyClassesCount) {
  const OfFixture of("micro-retinanet");
  const auto targets = make_targets({of.batch.truths[2]}, of.anchors, 1);
  torch::Tensor deltas = at::randn({1, of.anchors.size(0), 4}).requires_grad_();
  const torch::Tensor places = box_loss(deltas, targets, BoxLoss::giou);
  EXPECT_EQ(places.item<double>(), 0);
  places.sum().backward();
  ASSERT_TRUE(deltas.grad().defined()) << "weights behind would get no gradient";
  EXPECT_EQ(deltas.grad().abs().max().item<double>(), 0);
  const torch::Tensor logits = at::zeros({1, of.anchors.size(0), 4});
  // Background everywhere, divided by 1: 0.75 x 0.25 x ln 2 for each of 4842 x 4.
  EXPECT_NEAR(focal_loss(logits, targets).item<double>() / (4842 * 4 * 0.75 * 0.25 * std::log(2.0)), 1, kRelative);
}

TEST(Losses, FillersCountNothing) {
  const OfFixture of("micro-retinanet");
  const auto targets = make_targets({of.batch.truths[0], of.batch.truths[1]}, of.anchors, 1);
  const torch::Tensor losses = focal_loss(at::zeros({2, of.anchors.size(0), 4}), targets);
  EXPECT_GT(losses[0].item<double>(), 0);
  EXPECT_EQ(losses[1].item<double>(), 0);
}

}  // namespace
}  // namespace shardmark::detection
