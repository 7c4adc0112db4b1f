// The two-tower recommender of the public recipe: a table and a tower of Linear and ReLU for users, likewise for movies; the
// score is the dot product of what they give, the loss binary cross entropy. Movie ids are taken modulo the table. Gradients of
// the tables are dense. State names as there. Letters: N rows, C width of the tables, E width of the last layers.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "data/ratings_file.hpp"
#include "data/synthetic_ratings.hpp"
#include "model/auroc.hpp"
#include "model/embedding.hpp"
#include "model/layers.hpp"
#include "model/unit.hpp"
#include "table.hpp"

namespace shardmark::workloads {
namespace {

// Of synthetic ratings: the recipe's training rows; the tables of its data set where model.users and model.movies say nothing.
constexpr std::int64_t kSyntheticRows = 70'000;
constexpr std::int64_t kSyntheticUsers = 854;
constexpr std::int64_t kSyntheticMovies = 13'012;

/// A table and the layers behind it, one unit.
class Tower {
 public:
  struct Names {
    const char* table;
    const char* layers;
  };
  Tower(model::ParameterList& list, const Names& names, std::int64_t rows, const config::ModelSection& shape)
      : unit_(list.begin_unit(names.layers)),
        rows_(rows),
        table_(list, fmt::format("two_tower.ebc.embedding_bags.{}", names.table), rows, shape.width) {
    std::int64_t width = shape.width;
    for (std::size_t layer = 0; layer < shape.layers.size(); ++layer) {
      layers_.emplace_back(list, fmt::format("two_tower.{}._mlp.{}._linear", names.layers, layer), width, shape.layers[layer]);
      width = shape.layers[layer];
    }
  }

  /// (N, E) of ids within the table.
  [[nodiscard]] torch::Tensor forward(const model::ParameterList& list, const torch::Tensor& ids_N) const {
    const auto body = [&](const torch::Tensor& in_N) {
      torch::Tensor x = table_.forward(in_N);
      for (const auto& layer : layers_) {
        x = at::relu(layer.forward(x));  // the last one too
      }
      return x;
    };
    return model::run_unit(list, unit_, ids_N, body, /*checkpointable=*/true);
  }
  [[nodiscard]] std::int64_t rows() const { return rows_; }

 private:
  std::int64_t unit_;
  std::int64_t rows_;
  model::Embedding table_;
  std::vector<model::Linear> layers_;
};

class TwoTower final : public train::Workload {
 public:
  explicit TwoTower(const config::RunConfig& config)
      : shape_(checked(config.model)),
        training_(open_training(config)),
        users_(parameters_, {"t_userId", "query_proj"}, shape_.users > 0 ? shape_.users : training_->num_users(), shape_),
        movies_(parameters_, {"t_movieId", "candidate_proj"}, shape_.movies > 0 ? shape_.movies : training_->num_items(),
                shape_) {
    parameters_.set_checkpointing(shape_.activation_checkpointing);
    if (!config.data.eval_path.empty()) {
      held_out_ = std::make_unique<data::RatingsFile>(config.data.eval_path, data::RatingsExpectation{.users = users_.rows()});
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
  /// Look-ups compute nothing. Backward is twice the forward; recomputation runs the towers once more.
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override {
    std::int64_t width = shape_.width;
    std::int64_t tower = 0;
    for (const auto next : shape_.layers) {
      tower += width * next;
      width = next;
    }
    const double rows = 2.0 * static_cast<double>(num_rows);
    const double towers = rows * 2 * static_cast<double>(tower);
    const double forward = towers + rows * static_cast<double>(width);
    return {3 * forward, 3 * forward + (shape_.activation_checkpointing ? towers : 0)};
  }

  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    return {read(*training_, rows), key};
  }

  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override {
    const auto& weights_N = batch.tensors[3];
    const std::optional<torch::Tensor> weights = weights_N.defined() ? std::optional(weights_N) : std::nullopt;
    return at::binary_cross_entropy_with_logits(scores(batch.tensors), batch.tensors[2], weights, {}, at::Reduction::Sum);
  }

  [[nodiscard]] std::int64_t num_eval_rows() const override { return held_out_ ? held_out_->num_rows() : 0; }
  [[nodiscard]] std::string quality_name() const override { return "auroc"; }
  [[nodiscard]] bool higher_is_better() const override { return true; }
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> eval_rows) override {
    const torch::Tensor scores_N = scores(read(*held_out_, eval_rows)).to(at::TensorOptions(at::kCPU).dtype(at::kDouble));
    const auto* first = scores_N.const_data_ptr<double>();
    return {0, static_cast<double>(eval_rows.size()), {first, first + scores_N.numel()}};
  }
  [[nodiscard]] double quality(const train::Evaluation& all) const override {
    const auto& scores = all.items;
    std::vector<std::int64_t> rows(scores.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<std::int64_t> users(rows.size());
    std::vector<std::int64_t> movies(rows.size());
    std::vector<float> labels(rows.size());
    held_out_->read(rows, {users, movies, labels});
    return model::auroc(scores, labels);
  }

 private:
  /// Throws ConfigError with everything that no model can be built of.
  static config::ModelSection checked(const config::ModelSection& model) {
    std::vector<std::string> problems;
    if (model.width < 1) {
      problems.push_back(fmt::format("model.width = {}: tables need at least 1", model.width));
    }
    if (model.layers.empty() || std::ranges::min(model.layers) < 1) {
      problems.push_back(
          fmt::format("model.layers = [{}]: a tower needs widths of its layers, as [128, 64]", fmt::join(model.layers, ", ")));
    }
    if (model.dropout != 0) {
      problems.push_back(fmt::format("model.dropout = {}: the towers have none; 0 is accepted", model.dropout));
    }
    if (!problems.empty()) {
      throw base::ConfigError(std::move(problems));
    }
    return model;
  }

  static std::unique_ptr<data::RatingSource> open_training(const config::RunConfig& config) {
    const auto& model = config.model;
    if (config.data.path.empty()) {
      return std::make_unique<data::SyntheticRatings>(
          data::SyntheticRatingsOptions{.num_rows = kSyntheticRows,
                                        .num_users = model.users > 0 ? model.users : kSyntheticUsers,
                                        .num_items = model.movies > 0 ? model.movies : kSyntheticMovies,
                                        .seed = static_cast<std::uint64_t>(config.data.seed)});
    }
    return std::make_unique<data::RatingsFile>(config.data.path, data::RatingsExpectation{.users = model.users});
  }

  /// (N), in fp32 whatever the type of compute.
  [[nodiscard]] torch::Tensor scores(const std::vector<torch::Tensor>& batch) const {
    const torch::Tensor users_NE = users_.forward(parameters_, batch[0]);
    const torch::Tensor movies_NE = movies_.forward(parameters_, batch[1]);
    return (users_NE.to(at::kFloat) * movies_NE.to(at::kFloat)).sum(1);
  }

  /// Users, movies, labels, and weights where there are fillers (else undefined).
  [[nodiscard]] std::vector<torch::Tensor> read(data::RatingSource& source, std::span<const std::int64_t> rows) const {
    const auto count = static_cast<std::int64_t>(rows.size());
    const torch::Tensor users_N = at::empty({count}, staging(at::kLong));
    const torch::Tensor movies_N = at::empty({count}, staging(at::kLong));
    const torch::Tensor labels_N = at::empty({count}, staging(at::kFloat));
    const std::span movies(movies_N.data_ptr<std::int64_t>(), rows.size());
    source.read(rows, {{users_N.data_ptr<std::int64_t>(), rows.size()}, movies, {labels_N.data_ptr<float>(), rows.size()}});
    for (auto& movie : movies) {
      movie %= movies_.rows();
    }
    torch::Tensor weights_N;
    if (std::ranges::any_of(rows, [](std::int64_t row) { return row < 0; })) {
      weights_N = at::empty({count}, staging(at::kFloat));
      std::ranges::transform(rows, weights_N.data_ptr<float>(), [](std::int64_t row) { return row < 0 ? 0.0F : 1.0F; });
      weights_N = to_device(weights_N);
    }
    return {to_device(users_N), to_device(movies_N), to_device(labels_N), weights_N};
  }

  config::ModelSection shape_;
  model::ParameterList parameters_;
  std::unique_ptr<data::RatingSource> training_;
  std::unique_ptr<data::RatingSource> held_out_;
  Tower users_;
  Tower movies_;
};

}  // namespace

std::unique_ptr<train::Workload> make_two_tower(const config::RunConfig& config) {
  return std::make_unique<TwoTower>(config);
}

}  // namespace shardmark::workloads
