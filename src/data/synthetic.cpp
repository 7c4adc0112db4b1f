#include "data/synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

constexpr std::int64_t kKeptBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;

std::vector<std::string> problems_of(const SyntheticOptions& options) {
  std::vector<std::string> problems;
  if (options.num_rows < 1) {
    problems.push_back(fmt::format("synthetic data: {} rows; at least one is needed", options.num_rows));
  }
  if (options.width < 1) {
    problems.push_back(fmt::format("synthetic data: a width of {}; at least one is needed", options.width));
  }
  if ((options.target_width > 0) == (options.classes > 0) || options.target_width < 0 || options.classes < 0) {
    problems.push_back(fmt::format("synthetic data: target width {} and {} classes; exactly one of them must be positive",
                                   options.target_width, options.classes));
  }
  const std::int64_t row_elements = std::max({options.width, options.target_width, std::int64_t{1}});
  if (problems.empty() && options.num_rows > kMaxElements / row_elements) {
    problems.push_back(fmt::format("synthetic data: {} rows of width {} are too many", options.num_rows, row_elements));
  }
  return problems;
}

std::size_t to_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

SyntheticVectors::SyntheticVectors(const SyntheticOptions& options)
    : options_(options), feature_stream_(options.seed, "data.features"), target_stream_(options.seed, "data.targets") {
  auto problems = problems_of(options);
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  const base::RandomStream map_stream(options.seed, "data.map");
  map_.resize(to_size(options.classes) * to_size(options.width));
  for (std::size_t i = 0; i < map_.size(); ++i) {
    map_[i] = static_cast<double>(map_stream.normal(i));
  }
  const std::int64_t row_bytes = 4 * options.width + 4 * options.target_width + 8;
  if (options.num_rows <= kKeptBytes / row_bytes) {
    made_.resize(to_size(options.num_rows), false);
    kept_features_.resize(to_size(options.num_rows * options.width));
    kept_targets_.resize(to_size(options.num_rows * options.target_width));
    kept_labels_.resize(options.classes > 0 ? to_size(options.num_rows) : 0);
  }
}

void SyntheticVectors::make_row(std::int64_t row, std::span<float> features, std::span<float> targets,
                                std::int64_t* label) const {
  const std::uint64_t first_feature = static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(options_.width);
  for (std::size_t i = 0; i < features.size(); ++i) {
    features[i] = feature_stream_.normal(first_feature + i);
  }
  const std::uint64_t first_target = static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(options_.target_width);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = target_stream_.normal(first_target + i);
  }
  if (label == nullptr) {
    return;
  }
  if (options_.random_labels) {
    *label = target_stream_.bits(static_cast<std::uint64_t>(row)) % options_.classes;
    return;
  }
  double best = -std::numeric_limits<double>::infinity();
  for (std::int64_t c = 0; c < options_.classes; ++c) {
    double score = 0;
    for (std::size_t i = 0; i < features.size(); ++i) {
      score += map_[to_size(c) * features.size() + i] * static_cast<double>(features[i]);
    }
    if (score > best) {
      best = score;
      *label = c;
    }
  }
}

void SyntheticVectors::read_one(std::int64_t row, std::span<float> features, std::span<float> targets, std::int64_t* label) {
  if (made_.empty()) {
    make_row(row, features, targets, label);
    return;
  }
  const std::size_t index = to_size(row);
  const std::span kept_features = std::span(kept_features_).subspan(index * features.size(), features.size());
  const std::span kept_targets = std::span(kept_targets_).subspan(index * targets.size(), targets.size());
  std::int64_t* kept_label = kept_labels_.empty() ? nullptr : &kept_labels_[index];
  if (!made_[index]) {
    make_row(row, kept_features, kept_targets, kept_label);
    made_[index] = true;
  }
  std::copy(kept_features.begin(), kept_features.end(), features.begin());
  std::copy(kept_targets.begin(), kept_targets.end(), targets.begin());
  if (label != nullptr) {
    *label = *kept_label;
  }
}

void SyntheticVectors::read(std::span<const std::int64_t> rows, const VectorRows& out) {
  check_spans(*this, rows, out);
  const std::size_t width = to_size(options_.width);
  const std::size_t target_width = to_size(options_.target_width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span features = out.features.subspan(i * width, width);
    const std::span targets = out.targets.subspan(i * target_width, target_width);
    std::int64_t* label = out.labels.empty() ? nullptr : &out.labels[i];
    if (rows[i] >= 0) {
      read_one(rows[i], features, targets, label);
      continue;
    }
    std::fill(features.begin(), features.end(), 0.0F);
    std::fill(targets.begin(), targets.end(), 0.0F);
    if (label != nullptr) {
      *label = 0;
    }
  }
}

}  // namespace shardmark::data
