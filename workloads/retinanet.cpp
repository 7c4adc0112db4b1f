// RetinaNet on pictures with boxes: variant v1 or v2, losses summed over pictures, so that the mean over the global batch is
// what trains. Its quality is COCO's mean average precision. Letters: N pictures, A anchors, K classes.

#include "model/retinanet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "data/images_file.hpp"
#include "data/synthetic_images.hpp"
#include "detection/anchors.hpp"
#include "detection/coco_map.hpp"
#include "detection/decode.hpp"
#include "detection/loader.hpp"
#include "table.hpp"

namespace shardmark::workloads {
namespace {

constexpr std::int64_t kSyntheticRows = 1000;
constexpr std::int64_t kMultiple = 32;
// Numbers of one detection among Evaluation::items.
constexpr std::size_t kItem = 7;

/// Throws ConfigError with everything that no model can be built of.
void check(const config::RunConfig& config) {
  const auto& model = config.model;
  std::vector<std::string> problems;
  const auto at_least = [&](const char* key, std::int64_t value, std::int64_t least) {
    if (value < least) {
      problems.push_back(fmt::format("{} = {}: a RetinaNet needs at least {}", key, value, least));
    }
  };
  if (model.variant != "v1" && model.variant != "v2") {
    problems.push_back(fmt::format("model.variant = \"{}\": a RetinaNet is v1 or v2", model.variant));
  }
  at_least("model.stem", model.stem, 1);
  at_least("model.fpn", model.fpn, 1);
  at_least("model.classes", model.classes, 2);
  if (model.variant == "v2" && (model.groups < 1 || model.fpn % model.groups != 0)) {
    problems.push_back(fmt::format("model.groups = {} does not divide model.fpn = {}", model.groups, model.fpn));
  }
  const auto whole = [&](const char* key, const std::vector<double>& values) {
    for (const double value : values) {
      if (value < 1 || value != std::floor(value)) {
        problems.push_back(fmt::format("{} holds {}: whole numbers from 1 on are needed", key, value));
      }
    }
  };
  whole("model.stages", model.stages);
  whole("model.sizes", model.sizes);
  if (model.sizes[1] < model.sizes[0]) {
    problems.push_back(
        fmt::format("model.sizes = [{}, {}]: the long side's limit comes second", model.sizes[0], model.sizes[1]));
  }
  if (config.data.pad_to % kMultiple != 0) {
    problems.push_back(fmt::format("data.pad_to = {}: a multiple of {} is needed", config.data.pad_to, kMultiple));
  }
  if (model.dropout != 0) {
    problems.push_back(fmt::format("model.dropout = {}: a RetinaNet has none; 0 is accepted", model.dropout));
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
}

model::BatchStatistics statistics_of(const std::string& name) {
  static const std::map<std::string, model::BatchStatistics> names{{"local", model::BatchStatistics::local},
                                                                   {"sync", model::BatchStatistics::sync},
                                                                   {"eval", model::BatchStatistics::running},
                                                                   {"frozen", model::BatchStatistics::frozen}};
  return names.at(name);
}

model::RetinaNetConfig net_config(const config::RunConfig& config) {
  check(config);
  const auto& section = config.model;
  model::RetinaNetConfig net;
  net.variant = section.variant == "v1" ? model::RetinaNetVariant::v1 : model::RetinaNetVariant::v2;
  for (std::size_t stage = 0; stage < model::kStages; ++stage) {
    net.backbone.blocks[stage] = static_cast<std::int64_t>(section.stages[stage]);
  }
  net.backbone.stem = section.stem;
  net.backbone.statistics = statistics_of(section.batch_norm);
  net.channels = section.fpn;
  net.groups = section.groups;
  net.classes = section.classes;
  net.anchors_per_cell = detection::kAnchorsPerCell;
  return net;
}

/// Four to three like most photographs, or what the limit of the long side leaves.
data::ImageShape synthetic_shape(const std::vector<double>& sizes) {
  const auto side = static_cast<std::int64_t>(sizes[0]);
  return {side, std::min(static_cast<std::int64_t>(sizes[1]), side * 4 / 3)};
}

class Detector final : public train::Workload {
 public:
  explicit Detector(const config::RunConfig& config)
      : box_loss_(config.model.variant == "v1" ? detection::BoxLoss::l1 : detection::BoxLoss::giou),
        checkpointing_(config.model.activation_checkpointing),
        net_(parameters_, net_config(config)) {
    parameters_.set_checkpointing(checkpointing_);
    training_ = open(config, config.data.path, static_cast<std::uint64_t>(config.data.seed));
    const detection::LoaderOptions options{.resize = {config.model.sizes[0], config.model.sizes[1]},
                                           .pad_to = config.data.pad_to,
                                           .flip = config.data.flip,
                                           .num_threads = static_cast<std::size_t>(config.data.loader_threads)};
    const auto levels = [this](detection::ImageSize padded) { return levels_of(padded); };
    loader_.emplace(*training_, options, levels);
    loader_->check_boxes();
    if (!config.data.eval_path.empty()) {
      held_out_ = open(config, config.data.eval_path, 0);
      if (std::ranges::all_of(truths(), &detection::GroundTruth::crowd)) {
        throw base::DataError(fmt::format(
            "data.eval_path = {}: no picture has a box (but crowds), so there is nothing to score", config.data.eval_path));
      }
      eval_loader_.emplace(*held_out_, detection::LoaderOptions{.resize = options.resize, .pad_to = options.pad_to}, levels);
    }
  }

  [[nodiscard]] model::ParameterList& parameters() override { return parameters_; }
  [[nodiscard]] std::int64_t num_rows() const override { return training_->num_rows(); }
  [[nodiscard]] std::string data_source() const override { return training_->describe(); }

  /// The loss is a mean over pictures, with or without boxes.
  [[nodiscard]] double targets(std::span<const std::int64_t> rows) const override {
    return static_cast<double>(work(rows).samples);
  }
  [[nodiscard]] train::Work work(std::span<const std::int64_t> rows) const override {
    train::Work work;
    work.samples = std::ranges::count_if(rows, [](std::int64_t row) { return row >= 0; });
    return work;
  }
  /// Of average pictures, each padded by itself.
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> sizes;
    for (std::int64_t row = 0; row < training_->num_rows(); ++row) {
      const auto size = loader_->padded({loader_->resized(row)});
      ++sizes[{size.height, size.width}];
    }
    train::Flops flops;
    for (const auto& [size, count] : sizes) {
      const auto one = net_.flops(size.first, size.second);
      const double share = static_cast<double>(count * num_rows) / static_cast<double>(training_->num_rows());
      // Backward is twice the forward of what it passes.
      const double training = 3 * one.forward() - 2 * one.fixed;
      flops.model += share * training;
      flops.hardware += share * (training + (checkpointing_ ? one.recomputed : 0));
    }
    return flops;
  }

  void announce(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    loader_->announce(rows, load_key(key));
  }
  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    auto loaded = loader_->load(rows, load_key(key));
    const auto& targets = loaded.targets;
    train::Batch batch{{loaded.images_N3HW, targets.classes_NA, targets.positives_P, targets.images_P, targets.anchors_P4,
                        targets.boxes_P4, targets.scale_N},
                       key};
    for (auto& tensor : batch.tensors) {
      tensor = to_device(tensor);
    }
    batch.tensors.push_back(at::scalar_tensor(loaded.counted, at::kLong));
    return batch;
  }

  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override {
    const auto& t = batch.tensors;
    const detection::Targets targets{t[1], t[2], t[3], t[4], t[5], t[6]};
    const auto output =
        net_.forward(t[0], {.training = batch.key.training, .counted_rows = *t[7].const_data_ptr<std::int64_t>()});
    return (detection::focal_loss(output.logits_NAK, targets) + detection::box_loss(output.deltas_NA4, targets, box_loss_))
        .sum();
  }

  [[nodiscard]] std::int64_t num_eval_rows() const override { return held_out_ ? held_out_->num_rows() : 0; }
  [[nodiscard]] std::string quality_name() const override { return "coco_ap"; }
  [[nodiscard]] bool higher_is_better() const override { return true; }
  /// Each picture alone, so that no other decides its padding.
  [[nodiscard]] std::int64_t eval_rows_at_once() const override { return 1; }
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> eval_rows) override {
    const std::int64_t row = eval_rows[0];
    const auto picture = eval_loader_->prepare(row);
    const detection::ImageSize size = eval_loader_->resized(row);
    const detection::ImageSize padded = eval_loader_->padded({size});
    const auto output = net_.forward(to_device(detection::pad_images({picture.image_3HW}, padded)), {.training = false});
    std::vector<std::int64_t> anchors_per_level;
    for (const auto& level : levels_of(padded)) {
      anchors_per_level.push_back(level.height * level.width * detection::kAnchorsPerCell);
    }
    const auto found = detection::decode(output.logits_NAK[0].cpu(), output.deltas_NA4[0].cpu(), eval_loader_->anchors(padded),
                                         anchors_per_level, size);
    const auto stored = held_out_->shape(row);
    const torch::Tensor boxes =
        detection::resize_boxes(found.boxes_B4, size, {stored.height, stored.width}).to(at::kDouble).contiguous();
    train::Evaluation evaluation{.weight = 1};
    for (std::int64_t i = 0; i < boxes.size(0); ++i) {
      const double* box = boxes.const_data_ptr<double>() + 4 * i;
      for (const double number :
           {static_cast<double>(row), static_cast<double>(found.labels_B.const_data_ptr<std::int64_t>()[i]), box[0], box[1],
            box[2] - box[0], box[3] - box[1], static_cast<double>(found.scores_B.const_data_ptr<float>()[i])}) {
        evaluation.items.push_back(number);
      }
    }
    return evaluation;
  }

  [[nodiscard]] double quality(const train::Evaluation& all) const override {
    std::vector<detection::Detection> detections;
    for (std::size_t i = 0; i + kItem <= all.items.size(); i += kItem) {
      const double* item = all.items.data() + i;
      detections.push_back({static_cast<std::int64_t>(item[0]),
                            static_cast<std::int64_t>(item[1]),
                            {item[2], item[3], item[4], item[5]},
                            item[6]});
    }
    const auto scores = detection::coco_scores(truths(), detections);
    base::log_info(
        fmt::format("COCO scores of {} pictures: AP {:.4f}, AP50 {:.4f}, AP75 {:.4f}; small {:.4f}, medium {:.4f}, large "
                    "{:.4f}; AR with 1, "
                    "10, 100 detections {:.4f}, {:.4f}, {:.4f}; -1 where nothing of the kind is to be found",
                    held_out_->num_rows(), scores.ap, scores.ap50, scores.ap75, scores.ap_small, scores.ap_medium,
                    scores.ap_large, scores.ar1, scores.ar10, scores.ar100));
    return scores.ap;
  }

 private:
  static detection::LoadKey load_key(const model::ForwardKey& key) { return {key.seed, key.step, key.first_slot}; }

  [[nodiscard]] static std::unique_ptr<data::ImageSource> open(const config::RunConfig& config, const std::string& path,
                                                               std::uint64_t seed) {
    if (path.empty()) {
      return std::make_unique<data::SyntheticImages>(
          data::SyntheticImagesOptions{kSyntheticRows, synthetic_shape(config.model.sizes), config.model.classes, seed});
    }
    return std::make_unique<data::ImagesFile>(path, data::ImagesExpectation{.classes = config.model.classes});
  }

  [[nodiscard]] std::vector<detection::ImageSize> levels_of(detection::ImageSize padded) const {
    std::vector<detection::ImageSize> sizes;
    for (const auto& level : net_.levels(padded.height, padded.width)) {
      sizes.push_back({level.height, level.width});
    }
    return sizes;
  }

  [[nodiscard]] std::vector<detection::GroundTruth> truths() const {
    std::vector<detection::GroundTruth> all;
    for (std::int64_t row = 0; row < held_out_->num_rows(); ++row) {
      const auto objects = held_out_->objects(row);
      for (std::size_t i = 0; i < objects.labels.size(); ++i) {
        const auto at = [&](std::size_t side) { return static_cast<double>(objects.boxes[4 * i + side]); };
        all.push_back(
            {row, objects.labels[i], {at(0), at(1), at(2) - at(0), at(3) - at(1)}, objects.areas[i], objects.crowds[i] != 0});
      }
    }
    return all;
  }

  model::ParameterList parameters_;
  detection::BoxLoss box_loss_;
  bool checkpointing_;
  model::RetinaNet net_;
  std::unique_ptr<data::ImageSource> training_;
  std::unique_ptr<data::ImageSource> held_out_;
  std::optional<detection::Loader> loader_;
  std::optional<detection::Loader> eval_loader_;
};

}  // namespace

std::unique_ptr<train::Workload> make_retinanet(const config::RunConfig& config) {
  return std::make_unique<Detector>(config);
}

}  // namespace shardmark::workloads
