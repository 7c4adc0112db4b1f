// The vector transformer of the public recipe: Linear, a sequence of length 1, post-norm blocks, LayerNorm, Linear; cross
// entropy. State names as there. Letters: N rows, I input width, C width.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "data/synthetic.hpp"
#include "data/vectors_file.hpp"
#include "model/encoder.hpp"
#include "model/unit.hpp"
#include "table.hpp"

namespace shardmark::workloads {
namespace {

constexpr std::int64_t kIgnoredLabel = -100;
constexpr std::int64_t kSyntheticRows = 10'000;  // of the recipe, with random labels
constexpr std::int64_t kRoot = 0;

class VectorTransformer final : public train::Workload {
 public:
  explicit VectorTransformer(const config::RunConfig& config)
      : shape_(checked(config.model)),
        input_projection_(parameters_, "input_projection", shape_.input_width, shape_.width),
        norm_(parameters_, "norm", shape_.width),
        classifier_(parameters_, "classifier", shape_.width, shape_.classes) {
    for (auto& parameter : parameters_.parameters()) {
      parameter.behind_units = !parameter.name.starts_with("input_projection.");
    }
    for (std::int64_t layer = 0; layer < shape_.blocks; ++layer) {
      const std::string name = fmt::format("layers.{}", layer);
      units_.push_back(parameters_.begin_unit(name));
      blocks_.emplace_back(parameters_, name, shape_.width, shape_.mlp_width);
    }
    parameters_.set_checkpointing(shape_.activation_checkpointing);
    training_ = open(config.data.path, static_cast<std::uint64_t>(config.data.seed));
    if (!config.data.eval_path.empty()) {
      held_out_ = open(config.data.eval_path, 0);
    }
  }

  [[nodiscard]] model::ParameterList& parameters() override { return parameters_; }
  [[nodiscard]] std::int64_t num_rows() const override { return training_->num_rows(); }
  [[nodiscard]] std::string data_source() const override { return training_->describe(); }

  [[nodiscard]] double targets(std::span<const std::int64_t> rows) const override {
    return static_cast<double>(std::ranges::count_if(rows, [](std::int64_t row) { return row >= 0; }));
  }
  [[nodiscard]] train::Work work(std::span<const std::int64_t> rows) const override {
    train::Work work;
    work.samples = std::ranges::count_if(rows, [](std::int64_t row) { return row >= 0; });
    return work;
  }
  /// `model` is the architecture's, as the recipe counts it: query and key projections belong to it, though with one key their
  /// results are not needed. They are not executed, so `hardware` leaves them out.
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override {
    const double width = static_cast<double>(shape_.width);
    const auto blocks = static_cast<double>(shape_.blocks);
    const double ends = width * static_cast<double>(shape_.input_width + shape_.classes);
    const double of_block = 4 * width * width + 2 * width * static_cast<double>(shape_.mlp_width);
    const double executed = of_block - 2 * width * width;
    // Two a multiply-add; backward is twice the forward; recomputation runs the blocks once more.
    const double rows = 2.0 * static_cast<double>(num_rows);
    return {rows * 3 * (ends + blocks * of_block),
            rows * (3 * (ends + blocks * executed) + (shape_.activation_checkpointing ? blocks * executed : 0))};
  }

  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    return {read(*training_, rows), key};
  }

  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override {
    // In fp32 whatever the type of compute.
    return at::cross_entropy_loss(logits(batch.tensors[0]).to(at::kFloat), batch.tensors[1], {}, at::Reduction::Sum,
                                  kIgnoredLabel);
  }

  [[nodiscard]] std::int64_t num_eval_rows() const override { return held_out_ ? held_out_->num_rows() : 0; }
  [[nodiscard]] std::string quality_name() const override { return "accuracy"; }
  [[nodiscard]] bool higher_is_better() const override { return true; }
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> eval_rows) override {
    const auto tensors = read(*held_out_, eval_rows);
    const auto right = at::argmax(logits(tensors[0]), 1).eq(tensors[1]).sum().item<double>();
    return {right, static_cast<double>(eval_rows.size()), {}};
  }

 private:
  /// Throws ConfigError with everything that no model can be built of.
  static config::ModelSection checked(const config::ModelSection& model) {
    std::vector<std::string> problems;
    const auto positive = [&](const char* key, std::int64_t value) {
      if (value < 1) {
        problems.push_back(fmt::format("{} = {}: a vector transformer needs at least 1", key, value));
      }
    };
    positive("model.input_width", model.input_width);
    positive("model.width", model.width);
    positive("model.blocks", model.blocks);
    positive("model.heads", model.heads);
    positive("model.mlp_width", model.mlp_width);
    positive("model.classes", model.classes);
    if (model.width > 0 && model.heads > 0 && model.width % model.heads != 0) {
      problems.push_back(fmt::format("model.heads = {} does not divide model.width = {}", model.heads, model.width));
    }
    if (model.dropout != 0) {
      problems.push_back(fmt::format("model.dropout = {}: the vector transformer has none; 0 is accepted", model.dropout));
    }
    if (!problems.empty()) {
      throw base::ConfigError(std::move(problems));
    }
    return model;
  }

  [[nodiscard]] std::unique_ptr<data::VectorSource> open(const std::string& path, std::uint64_t seed) const {
    if (path.empty()) {
      return std::make_unique<data::SyntheticVectors>(data::SyntheticOptions{.num_rows = kSyntheticRows,
                                                                             .width = shape_.input_width,
                                                                             .classes = shape_.classes,
                                                                             .seed = seed,
                                                                             .random_labels = true});
    }
    return std::make_unique<data::VectorsFile>(
        path, data::VectorsExpectation{.width = shape_.input_width, .classes = shape_.classes});
  }

  /// The mean over a sequence of length 1 is its element, so sequences are rows throughout.
  [[nodiscard]] torch::Tensor logits(const torch::Tensor& features_NI) const {
    return model::run_unit(parameters_, kRoot, features_NI, [&](const torch::Tensor& in_NI) {
      torch::Tensor x_NC = input_projection_.forward(in_NI);
      for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
        const auto block = [&, layer](const torch::Tensor& in_NC) { return blocks_[layer].forward(in_NC); };
        x_NC = model::run_unit(parameters_, units_[layer], x_NC, block, /*checkpointable=*/true);
      }
      return classifier_.forward(norm_.forward(x_NC));
    });
  }

  /// Features and labels; fillers' labels are ignored.
  [[nodiscard]] std::vector<torch::Tensor> read(data::VectorSource& source, std::span<const std::int64_t> rows) const {
    const auto count = static_cast<std::int64_t>(rows.size());
    const torch::Tensor features_NI = at::empty({count, shape_.input_width}, staging(at::kFloat));
    const torch::Tensor labels_N = at::empty({count}, staging(at::kLong));
    const std::span labels(labels_N.data_ptr<std::int64_t>(), rows.size());
    source.read(rows, {{features_NI.data_ptr<float>(), static_cast<std::size_t>(features_NI.numel())}, {}, labels});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      labels[i] = rows[i] < 0 ? kIgnoredLabel : labels[i];
    }
    return {to_device(features_NI), to_device(labels_N)};
  }

  config::ModelSection shape_;
  model::ParameterList parameters_;
  model::Linear input_projection_;
  model::LayerNorm norm_;
  model::Linear classifier_;
  std::vector<std::int64_t> units_;         // of each block
  std::deque<model::EncoderBlock> blocks_;  // addresses stay valid: backward may run a block again
  std::unique_ptr<data::VectorSource> training_;
  std::unique_ptr<data::VectorSource> held_out_;
};

}  // namespace

std::unique_ptr<train::Workload> make_transformer(const config::RunConfig& config) {
  return std::make_unique<VectorTransformer>(config);
}

}  // namespace shardmark::workloads
