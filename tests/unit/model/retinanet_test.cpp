#include "model/retinanet.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include <fstream>

#include "detection/decode.hpp"
#include "tests/support/numbers_from_names.hpp"
#include "tests/support/retinanet_fixture.hpp"

namespace shardmark::model {
namespace {

using testing::micro_config;
using testing::RetinaNetUnderTest;

constexpr std::array<std::int64_t, kStages> kResNet50{3, 4, 6, 3};

RetinaNetConfig published(RetinaNetVariant variant, BatchStatistics statistics) {
  return {.variant = variant, .backbone = {.blocks = kResNet50, .stem = 64, .statistics = statistics}};
}

struct Counts {
  RetinaNetConfig config;
  std::int64_t parameters, trainable;
};

TEST(RetinaNet, HasThePublishedNumberOfParameters) {
  RetinaNetConfig tiny = published(RetinaNetVariant::v2, BatchStatistics::local);
  tiny.backbone.blocks = {1, 1, 1, 1};
  tiny.classes = 4;
  for (const auto& [config, parameters, trainable] : {
           Counts{published(RetinaNetVariant::v2, BatchStatistics::local), 38'198'935, 38'198'935},
           Counts{published(RetinaNetVariant::v2, BatchStatistics::sync), 38'198'935, 38'198'935},
           Counts{published(RetinaNetVariant::v1, BatchStatistics::frozen), 34'014'999, 33'792'599},
           Counts{published(RetinaNetVariant::v1, BatchStatistics::local), 34'068'119, 34'068'119},
           Counts{tiny, 20'902'024, 20'902'024},
           Counts{micro_config(RetinaNetVariant::v2, BatchStatistics::running), 1'344'088, 1'344'088},
           Counts{micro_config(RetinaNetVariant::v1, BatchStatistics::frozen), 1'080'696, 1'073'736},
       }) {
    ParameterList list;
    const RetinaNet net(list, config);
    EXPECT_EQ(list.numel(), parameters);
    EXPECT_EQ(list.trainable_numel(), trainable);
  }
}

TEST(RetinaNet, HasThePublishedBuffers) {
  ParameterList list;
  const RetinaNet net(list, published(RetinaNetVariant::v2, BatchStatistics::local));
  std::int64_t scalars = 0;
  for (const auto& buffer : list.buffers()) {
    scalars += buffer.value.numel();
  }
  EXPECT_EQ(scalars, 53'173);
}

TEST(RetinaNet, CostsWhatIsPublished) {
  struct Case {
    std::int64_t height, width;
    double backbone, heads;
  };
  ParameterList list;
  const RetinaNet net(list, published(RetinaNetVariant::v2, BatchStatistics::local));
  // Given to a hundredth of 10^9.
  for (const auto& [height, width, backbone, heads] :
       {Case{800, 800, 125.99, 178.49}, Case{800, 1088, 171.25, 242.58}, Case{800, 1344, 211.55, 299.65}}) {
    const auto flops = net.flops(height, width);
    EXPECT_NEAR(flops.backbone_and_pyramid / 1e9, backbone, 0.0051);
    EXPECT_NEAR(flops.heads / 1e9, heads, 0.0051);
    EXPECT_EQ(flops.fixed, 0);
  }
  EXPECT_NEAR(net.flops(256, 256).forward() / 1e9, 31.13, 0.0051);
}

TEST(RetinaNet, FirstValuesOfHeadsGiveTheirPrior) {
  ParameterList list;
  const RetinaNet net(list, published(RetinaNetVariant::v2, BatchStatistics::local));
  for (const auto& parameter : list.parameters()) {
    if (parameter.name == "head.classification_head.cls_logits.bias") {
      EXPECT_FLOAT_EQ(static_cast<float>(parameter.init.a), -4.59511985F);
    }
  }
}

class MicroV2 : public ::testing::Test {
 protected:
  [[nodiscard]] static RetinaNetUnderTest& bound(RetinaNetUnderTest& model, const testing::DetectionFixture& fixture) {
    const weights::SafetensorsFile weights(fixture.folder + "model.safetensors");
    model.bind([&](const std::string& name, const auto&) { return testing::read_tensor(weights, name).to(at::kFloat); });
    return model;
  }
  testing::DetectionFixture fixture{"micro-retinanet"};
};

constexpr VisionPass kTraining{.training = true, .counted_rows = 3};
// An output is a sum of 576 products behind five others of that kind; their roundings, of either sign, stay far below this
// share of the whole, and any wrong operation far above.
constexpr double kOutputs = 2e-5;

double relative_l2(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return ((found.to(at::kDouble) - expected.to(at::kDouble)).norm() / expected.to(at::kDouble).norm()).item<double>();
}

void expect_mixed_outputs(const testing::DetectionFixture& fixture, const RetinaNetUnderTest::Losses& losses) {
  EXPECT_LE(relative_l2(losses.output.logits_NAK[0], fixture.read("mixed.cls_logits.0")), kOutputs);
  EXPECT_LE(relative_l2(losses.output.deltas_NA4[0], fixture.read("mixed.bbox_regression.0")), kOutputs);
  // The fixture's loss tolerance.
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(losses.classes_N[i].item<double>() / fixture.read("mixed.class_loss_per_image")[i].item<double>(), 1, 2e-6);
  }
  EXPECT_NEAR(losses.boxes_N.mean().item<double>() / fixture.read("mixed.box_loss").item<double>(), 1, 2e-6);
}

TEST_F(MicroV2, OutputsAndLossesOfMixedPictures) {
  for (const auto statistics : {BatchStatistics::local, BatchStatistics::sync}) {
    RetinaNetUnderTest model(micro_config(RetinaNetVariant::v2, statistics));
    const auto losses = bound(model, fixture).losses(fixture.batch("mixed", 3), detection::BoxLoss::giou, kTraining);
    expect_mixed_outputs(fixture, losses);
  }
}

void expect_detections(const testing::DetectionFixture& fixture, const RetinaNetUnderTest& model, const std::string& part,
                       const detection::DecodeRule& rule) {
  const torch::NoGradGuard no_grad;
  const auto batch = fixture.batch("mixed", 3);
  const auto output = model.net.forward(batch.images_N3HW, {.training = false});
  const torch::Tensor anchors = detection::make_anchors(batch.padded, testing::kFixtureLevels);
  const std::vector<std::int64_t> levels{3600, 900, 225, 81, 36};
  for (int i = 0; i < 3; ++i) {
    const std::string image = fmt::format(".{}", i);
    const auto at = static_cast<std::size_t>(i);
    const auto found = detection::decode(output.logits_NAK[i], output.deltas_NA4[i], anchors, levels, batch.sizes[at], rule);
    const torch::Tensor stored = fixture.pixels("mixed", i);
    const torch::Tensor boxes = detection::resize_boxes(found.boxes_B4, batch.sizes[at], {stored.size(0), stored.size(1)});
    ASSERT_TRUE(at::equal(found.labels_B, fixture.read(part + ".labels" + image))) << part << image;
    // As outputs; boxes are up to 160 pixels, scores up to 1.
    EXPECT_LE(testing::largest_difference(found.scores_B, fixture.read(part + ".scores" + image)), kOutputs);
    EXPECT_LE(testing::largest_difference(boxes, fixture.read(part + ".boxes" + image)), 160 * kOutputs);
  }
}

void expect_all_detections(const testing::DetectionFixture& fixture, const RetinaNetUnderTest& model) {
  expect_detections(fixture, model, "eval", {});
  expect_detections(fixture, model, "eval_tight", {.candidates_per_level = 12, .keep = 10});
}

TEST_F(MicroV2, Detections) {
  RetinaNetUnderTest model(micro_config(RetinaNetVariant::v2, BatchStatistics::local));
  expect_all_detections(fixture, bound(model, fixture));
}

/// Each stored gradient, whole or every 16th element, within the fixture's tolerance of 3e-4.
TEST_F(MicroV2, GradientsOfTheFirstTrainingStep) {
  const weights::SafetensorsFile gradients(fixture.folder + "gradients.safetensors");
  for (const auto statistics : {BatchStatistics::local, BatchStatistics::sync}) {
    RetinaNetUnderTest model(micro_config(RetinaNetVariant::v2, statistics));
    const auto losses =
        bound(model, fixture)
            .losses(fixture.batch("steady", 12), detection::BoxLoss::giou, {.training = true, .counted_rows = 12});
    EXPECT_NEAR(losses.total().item<double>() / fixture.read("train.trajectory.loss")[0].item<double>(), 1, 2e-6);
    losses.total().backward();
    std::size_t compared = 0;
    for (const auto& parameter : model.list.parameters()) {
      const torch::Tensor found = parameter.value.grad();
      ASSERT_TRUE(found.defined()) << parameter.name;
      const bool whole = gradients.find("grad." + parameter.name) != nullptr;
      const torch::Tensor expected = testing::read_tensor(gradients, (whole ? "grad." : "grad_every_16th.") + parameter.name);
      const torch::Tensor kept = whole ? found : found.contiguous().view(-1).slice(0, 0, found.numel(), 16);
      EXPECT_LE(relative_l2(kept, expected), 3e-4) << parameter.name;
      ++compared;
    }
    EXPECT_EQ(compared, gradients.tensors().size());
  }
}

TEST_F(MicroV2, CheckpointingKeepsBitsAndMovesStatisticsOnce) {
  const auto run = [&](BatchStatistics statistics, bool checkpointing) {
    RetinaNetUnderTest model(micro_config(RetinaNetVariant::v2, statistics));
    model.list.set_checkpointing(checkpointing);
    const auto losses = bound(model, fixture).losses(fixture.batch("mixed", 3), detection::BoxLoss::giou, kTraining);
    losses.total().backward();
    std::vector<torch::Tensor> kept;
    for (const auto& parameter : model.list.parameters()) {
      kept.push_back(parameter.value.grad());
    }
    for (const auto& buffer : model.list.buffers()) {
      kept.push_back(buffer.value);
    }
    return kept;
  };
  for (const auto statistics : {BatchStatistics::local, BatchStatistics::sync, BatchStatistics::running}) {
    const auto expected = run(statistics, false);
    const auto found = run(statistics, true);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    }
  }
}

TEST(MicroV1, OutputsLossesAndDetections) {
  const testing::DetectionFixture fixture("micro-retinanet-v1");
  std::ifstream stream(fixture.folder + "reference.json");
  const auto facts = nlohmann::json::parse(stream).at("tensors");
  RetinaNetUnderTest model(micro_config(RetinaNetVariant::v1, BatchStatistics::frozen));
  model.bind([&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const auto& rule = facts.at(name);
    EXPECT_EQ(rule.at("shape").get<std::vector<std::int64_t>>(), shape) << name;
    torch::Tensor values = at::empty(shape);
    testing::fill_from_name({values.data_ptr<float>(), static_cast<std::size_t>(values.numel())}, "micro-retinanet-v1/" + name,
                            rule.at("amplitude"), rule.at("center"));
    return values;
  });
  expect_mixed_outputs(fixture, model.losses(fixture.batch("mixed", 3), detection::BoxLoss::l1, kTraining));
  expect_all_detections(fixture, model);
}

}  // namespace
}  // namespace shardmark::model
