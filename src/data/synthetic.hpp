#pragma once
// Made-up vectors, each value a pure function of (seed, row, element): the same for every rank count and technique.
// Features are N(0,1). Regression targets are N(0,1) too, so nothing can be learnt from them (the recipe's own data);
// class labels are the argmax of a fixed random linear map of the features, which can be learnt, or random too.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "data/vector_source.hpp"

namespace shardmark::data {

struct SyntheticOptions {
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
  std::int64_t target_width = 0;  // regression if positive; then classes is 0
  std::int64_t classes = 0;       // classification if positive; then target_width is 0
  std::uint64_t seed = 0;
  bool random_labels = false;  // classes are drawn evenly instead: only learnt by heart
};

class SyntheticVectors final : public VectorSource {
 public:
  /// Throws ConfigError naming each number that is wrong.
  explicit SyntheticVectors(const SyntheticOptions& options);

  [[nodiscard]] std::int64_t num_rows() const override { return options_.num_rows; }
  [[nodiscard]] std::int64_t width() const override { return options_.width; }
  [[nodiscard]] std::int64_t target_width() const override { return options_.target_width; }
  [[nodiscard]] std::int64_t num_classes() const override { return options_.classes; }
  [[nodiscard]] std::string describe() const override { return "synthetic"; }
  void read(std::span<const std::int64_t> rows, const VectorRows& out) override;

 private:
  void make_row(std::int64_t row, std::span<float> features, std::span<float> targets, std::int64_t* label) const;
  void read_one(std::int64_t row, std::span<float> features, std::span<float> targets, std::int64_t* label);

  SyntheticOptions options_;
  base::RandomStream feature_stream_;
  base::RandomStream target_stream_;
  std::vector<double> map_;  // classes x width
  // Rows already made, where all of them fit into kKeptBytes: making a row costs more than training a small model on it.
  std::vector<bool> made_;
  std::vector<float> kept_features_;
  std::vector<float> kept_targets_;
  std::vector<std::int64_t> kept_labels_;
};

}  // namespace shardmark::data
