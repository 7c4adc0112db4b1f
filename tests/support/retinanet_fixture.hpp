#pragma once
// A RetinaNet with a fixture's weights, as a strategy would bind them.

#include <torch/torch.h>

#include <string>

#include "detection/anchors.hpp"
#include "detection/losses.hpp"
#include "model/retinanet.hpp"
#include "tests/support/detection_fixture.hpp"

namespace shardmark::testing {

inline model::RetinaNetConfig micro_config(model::RetinaNetVariant variant, model::BatchStatistics statistics) {
  return {.variant = variant,
          .backbone = {.blocks = {1, 1, 1, 1}, .stem = 16, .statistics = statistics},
          .channels = 64,
          .groups = 8,
          .classes = 4};
}

struct RetinaNetUnderTest {
  /// One thread, as a rank has: on which side of zero what enters a ReLU falls may depend on the order of sums.
  explicit RetinaNetUnderTest(const model::RetinaNetConfig& config) : net(list, config) { at::set_num_threads(1); }

  /// `read` gives the values of a name. Buffers that count batches stay.
  template <typename Read>
  void bind(const Read& read) {
    for (auto& parameter : list.parameters()) {
      parameter.value = read(parameter.name, parameter.shape).set_requires_grad(parameter.trainable);
    }
    for (auto& buffer : list.buffers()) {
      if (buffer.value.scalar_type() == at::kFloat) {
        buffer.value = read(buffer.name, buffer.value.sizes().vec());
      }
    }
  }

  struct Losses {
    torch::Tensor classes_N, boxes_N;
    model::RetinaNet::Output output;
    /// Mean over images.
    [[nodiscard]] torch::Tensor total() const { return (classes_N + boxes_N).mean(); }
  };
  [[nodiscard]] Losses losses(const DetectionFixture::Batch& batch, detection::BoxLoss kind,
                              const model::VisionPass& pass) const {
    std::vector<detection::ImageSize> levels;
    for (const auto& level : net.levels(batch.padded.height, batch.padded.width)) {
      levels.push_back({level.height, level.width});
    }
    const auto targets = detection::make_targets(batch.truths, detection::make_anchors(batch.padded, levels),
                                                 static_cast<std::int64_t>(batch.truths.size()));
    const auto output = net.forward(batch.images_N3HW, pass);
    return {detection::focal_loss(output.logits_NAK, targets), detection::box_loss(output.deltas_NA4, targets, kind), output};
  }

  model::ParameterList list;
  model::RetinaNet net;
};

}  // namespace shardmark::testing
