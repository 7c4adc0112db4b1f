// A multi-layer perceptron on vectors: Linear, ReLU, Dropout per hidden layer, then one Linear. Variant "regression" has
// mean squared error, "classification" cross entropy. State names as in the public recipe: net.0, net.3, net.6, ...
// Letters: N rows, I input width, C classes or outputs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "data/synthetic.hpp"
#include "data/vectors_file.hpp"
#include "model/layers.hpp"
#include "model/unit.hpp"
#include "table.hpp"

namespace shardmark::workloads {
namespace {

constexpr std::int64_t kIgnoredLabel = -100;
constexpr std::int64_t kSyntheticRows = 5000;

class Mlp final : public train::Workload {
 public:
  explicit Mlp(const config::RunConfig& config)
      : regression_(config.model.variant == "regression"),
        width_in_(config.model.input_width),
        width_(config.model.width),
        hidden_layers_(config.model.layers.empty() ? 0 : config.model.layers.front()),
        outputs_(config.model.classes) {
    check(config);
    training_ = open(config.data.path, static_cast<std::uint64_t>(config.data.seed));
    if (!config.data.eval_path.empty()) {
      held_out_ = open(config.data.eval_path, 0);
    }
    std::int64_t width = width_in_;
    for (std::int64_t layer = 0; layer < hidden_layers_; ++layer) {
      // Linear, ReLU and Dropout count as three places each in the public state names.
      const std::string name = fmt::format("net.{}", 3 * layer);
      units_.push_back(parameters_.begin_unit(name));
      linears_.emplace_back(parameters_, name, width, width_);
      dropouts_.emplace_back(fmt::format("net.{}", 3 * layer + 2), config.model.dropout);
      width = width_;
    }
    const std::string name = fmt::format("net.{}", 3 * hidden_layers_);
    units_.push_back(parameters_.begin_unit(name));
    linears_.emplace_back(parameters_, name, width, outputs_);
    parameters_.set_checkpointing(config.model.activation_checkpointing);
  }

  [[nodiscard]] model::ParameterList& parameters() override { return parameters_; }
  [[nodiscard]] std::int64_t num_rows() const override { return training_->num_rows(); }
  [[nodiscard]] std::string data_source() const override { return training_->describe(); }

  [[nodiscard]] double targets(std::span<const std::int64_t> rows) const override {
    const auto real = std::ranges::count_if(rows, [](std::int64_t row) { return row >= 0; });
    return static_cast<double>(regression_ ? real * outputs_ : real);
  }
  [[nodiscard]] train::Work work(std::span<const std::int64_t> rows) const override {
    train::Work work;
    work.samples = std::ranges::count_if(rows, [](std::int64_t row) { return row >= 0; });
    return work;
  }
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override {
    const std::int64_t multiply_adds = width_in_ * width_ + (hidden_layers_ - 1) * width_ * width_ + width_ * outputs_;
    // Forward, and twice as much in backward (facts: training 3 x forward).
    const double flops = 6.0 * static_cast<double>(multiply_adds) * static_cast<double>(num_rows);
    return {flops, flops};
  }

  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    return {read(*training_, rows), key};
  }

  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override {
    const torch::Tensor outputs_NC = forward(batch.tensors[0], batch.key);
    const torch::Tensor& wanted = batch.tensors[1];
    if (!regression_) {
      return at::cross_entropy_loss(outputs_NC, wanted, {}, at::Reduction::Sum, kIgnoredLabel);
    }
    if (batch.tensors.size() > 2) {  // filler rows weigh nothing
      return (at::mse_loss(outputs_NC, wanted, at::Reduction::None) * batch.tensors[2]).sum();
    }
    return at::mse_loss(outputs_NC, wanted, at::Reduction::Sum);
  }

  [[nodiscard]] std::int64_t num_eval_rows() const override { return held_out_ ? held_out_->num_rows() : 0; }
  [[nodiscard]] std::string quality_name() const override { return regression_ ? "mse" : "accuracy"; }
  [[nodiscard]] bool higher_is_better() const override { return !regression_; }
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> eval_rows) override {
    model::ForwardKey key;
    key.training = false;
    const auto tensors = read(*held_out_, eval_rows);
    const torch::Tensor outputs_NC = forward(tensors[0], key);
    if (regression_) {
      return {at::mse_loss(outputs_NC, tensors[1], at::Reduction::Sum).item<double>(), targets(eval_rows)};
    }
    return {at::argmax(outputs_NC, 1).eq(tensors[1]).sum().item<double>(), static_cast<double>(eval_rows.size())};
  }

 private:
  static void check(const config::RunConfig& config) {
    std::vector<std::string> problems;
    const auto positive = [&](const char* key, std::int64_t value) {
      if (value < 1) {
        problems.push_back(fmt::format("{} = {}: an MLP needs at least 1", key, value));
      }
    };
    positive("model.input_width", config.model.input_width);
    positive("model.width", config.model.width);
    if (config.model.layers.size() > 1) {
      problems.push_back(fmt::format("model.layers = [{}]: an MLP needs one number, its hidden layers; all have model.width",
                                     fmt::join(config.model.layers, ", ")));
    }
    positive("model.layers", config.model.layers.empty() ? 0 : config.model.layers.front());
    positive("model.classes", config.model.classes);
    if (!problems.empty()) {
      throw base::ConfigError(std::move(problems));
    }
  }

  /// A data file, or as many synthetic rows as the public recipe has.
  [[nodiscard]] std::unique_ptr<data::VectorSource> open(const std::string& path, std::uint64_t seed) const {
    const std::int64_t targets = regression_ ? outputs_ : 0;
    const std::int64_t classes = regression_ ? 0 : outputs_;
    if (path.empty()) {
      return std::make_unique<data::SyntheticVectors>(
          data::SyntheticOptions{kSyntheticRows, width_in_, targets, classes, seed});
    }
    return std::make_unique<data::VectorsFile>(path, data::VectorsExpectation{width_in_, targets, classes});
  }

  [[nodiscard]] torch::Tensor forward(const torch::Tensor& features_NI, const model::ForwardKey& key) const {
    torch::Tensor x = features_NI;
    for (std::size_t layer = 0; layer < dropouts_.size(); ++layer) {
      const auto hidden = [&, layer](const torch::Tensor& in) {
        return dropouts_[layer].forward(at::relu(linears_[layer].forward(in)), key);
      };
      x = model::run_unit(parameters_, units_[layer], x, hidden, /*checkpointable=*/true);
    }
    const auto last = [&](const torch::Tensor& in) { return linears_.back().forward(in); };
    // Losses are computed in fp32 whatever the type of compute.
    return model::run_unit(parameters_, units_.back(), x, last, /*checkpointable=*/true).to(at::kFloat);
  }

  /// Features, targets and, where there are filler rows in a regression, their weights (N, 1).
  [[nodiscard]] std::vector<torch::Tensor> read(data::VectorSource& source, std::span<const std::int64_t> rows) const {
    const auto count = static_cast<std::int64_t>(rows.size());
    const torch::Tensor features_NI = at::empty({count, width_in_}, staging(at::kFloat));
    const std::span<float> features(features_NI.data_ptr<float>(), static_cast<std::size_t>(features_NI.numel()));
    const bool filled = std::ranges::any_of(rows, [](std::int64_t row) { return row < 0; });
    if (regression_) {
      const torch::Tensor targets_NC = at::empty({count, outputs_}, staging(at::kFloat));
      source.read(rows, {features, {targets_NC.data_ptr<float>(), static_cast<std::size_t>(targets_NC.numel())}, {}});
      if (!filled) {
        return {to_device(features_NI), to_device(targets_NC)};
      }
      const torch::Tensor weights_N1 = at::ones({count, 1}, staging(at::kFloat));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        weights_N1.data_ptr<float>()[i] = rows[i] < 0 ? 0.0F : 1.0F;
      }
      return {to_device(features_NI), to_device(targets_NC), to_device(weights_N1)};
    }
    const torch::Tensor labels_N = at::empty({count}, staging(at::kLong));
    source.read(rows, {features, {}, {labels_N.data_ptr<std::int64_t>(), static_cast<std::size_t>(count)}});
    for (std::size_t i = 0; filled && i < rows.size(); ++i) {
      if (rows[i] < 0) {
        labels_N.data_ptr<std::int64_t>()[i] = kIgnoredLabel;
      }
    }
    return {to_device(features_NI), to_device(labels_N)};
  }

  bool regression_;
  std::int64_t width_in_;
  std::int64_t width_;
  std::int64_t hidden_layers_;
  std::int64_t outputs_;
  model::ParameterList parameters_;
  std::vector<std::int64_t> units_;  // of each Linear
  std::vector<model::Linear> linears_;
  std::vector<model::Dropout> dropouts_;
  std::unique_ptr<data::VectorSource> training_;
  std::unique_ptr<data::VectorSource> held_out_;
};

}  // namespace

std::unique_ptr<train::Workload> make_mlp(const config::RunConfig& config) {
  return std::make_unique<Mlp>(config);
}

}  // namespace shardmark::workloads
