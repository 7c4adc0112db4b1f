#pragma once
// A model of prime sizes whose rows differ by step, micro-step and rank, and a strategy that trains it over the ranks of the
// test. Letters: N rows, I = 7, H = 13, O = 5.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "comm/factory.hpp"
#include "model/parameter.hpp"
#include "model/unit.hpp"
#include "parallel/strategy.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {

inline constexpr std::int64_t kIn = 7;
inline constexpr std::int64_t kHidden = 13;
inline constexpr std::int64_t kOut = 5;
inline constexpr std::int64_t kRows = 3;  // per rank and micro-step

enum class Gate { none, used, unused, unused_on_last_rank };

struct TinyOptions {
  bool frozen_body = false;  // body.weight
  Gate gate = Gate::none;    // a further parameter that scales the outputs
};

inline torch::Tensor random_rows(const char* what, std::int64_t width, std::int64_t step, std::int64_t micro, int rank) {
  const auto salt = base::hash_mix(static_cast<std::uint64_t>(step * 64 + micro), static_cast<std::uint64_t>(rank));
  const base::RandomStream stream(11, what, salt);
  torch::Tensor rows = at::empty({kRows, width}, at::kFloat);
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    rows.data_ptr<float>()[i] = stream.normal(static_cast<std::uint64_t>(i));
  }
  return rows;
}

/// What a model declares. The head, which backward meets first, is declared first: a first guess that later layers come last
/// is wrong here, so buckets that follow the arrival order differ from those of the first step.
struct TinyModel {
  explicit TinyModel(const TinyOptions& chosen) : options(chosen) {
    const auto init = model::Init::uniform(-0.5, 0.5);
    list.add("head.weight", {kOut, kHidden}, init);
    list.add("head.bias", {kOut}, init);
    list.add("body.weight", {kHidden, kIn}, init).trainable = !chosen.frozen_body;
    list.add("body.bias", {kHidden}, init);
    if (chosen.gate != Gate::none) {
      list.add("gate.scale", {kOut}, init);
    }
  }

  /// Sum of squared errors of one micro-batch, with the parameters given in order of declaration. tanh: no gradient is an
  /// exact zero, whose sign additions could change. `on_hidden` is called when backward has passed the head.
  [[nodiscard]] torch::Tensor loss_sum(const std::vector<torch::Tensor>& values, std::int64_t step, std::int64_t micro,
                                       int rank, int size, const std::function<void()>& on_hidden = nullptr) const {
    torch::Tensor hidden_NH = at::tanh(at::linear(random_rows("x", kIn, step, micro, rank), values[2], values[3]));
    if (on_hidden) {
      hidden_NH.register_hook([on_hidden](const torch::Tensor& /*gradient*/) { on_hidden(); });
    }
    torch::Tensor out_NO = at::linear(hidden_NH, values[0], values[1]);
    if (options.gate == Gate::used || (options.gate == Gate::unused_on_last_rank && rank != size - 1)) {
      out_NO = out_NO * values[4];
    }
    return at::mse_loss(out_NO, random_rows("y", kOut, step, micro, rank), at::Reduction::Sum);
  }

  TinyOptions options;
  model::ParameterList list;
};

/// Backward of a micro-step: the loss is divided by the number of targets of the global batch before it.
inline void backward(const torch::Tensor& loss, int size, std::int64_t micro_steps) {
  const auto targets = static_cast<double>(size * micro_steps * kRows * kOut);
  torch::autograd::backward({loss}, {at::full({}, 1.0 / targets, at::kFloat)});
}

inline float clip_coefficient(double clip, double norm) {
  return static_cast<float>(std::min(1.0, clip / (norm + 1e-6)));
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_contiguous() && b.is_contiguous() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

/// Copies, since the strategy goes on in its own memory.
inline std::vector<parallel::NamedTensor> copies(std::vector<parallel::NamedTensor> tensors) {
  for (auto& tensor : tensors) {
    tensor.values = tensor.values.clone();
  }
  return tensors;
}

inline parallel::StrategyOptions tiny_strategy_options() {
  parallel::StrategyOptions options;
  options.seed = 5;
  options.bucket_bytes = 64;  // a bucket or more for every tensor
  options.optimizer.name = "adamw";
  options.optimizer.weight_decay = 0.1;
  return options;
}

/// A strategy over a real communicator. Every method is collective.
class TinyRun {
 public:
  /// `alter`: the model, before the strategy takes it up.
  TinyRun(
      const std::string& technique, const parallel::StrategyOptions& options, const TinyOptions& tiny, double clip,
      const std::function<void(model::ParameterList&)>& alter = [](model::ParameterList&) {})
      : options_(options), clip_(clip), stack_(comm::make_communicator(test_world(), {})), model_(tiny) {
    alter(model_.list);
    strategy_ = parallel::make_strategy(technique, options, stack_.communicator());
    strategy_->prepare(model_.list, nullptr);
  }

  void micro_step(std::int64_t step, std::int64_t micro) {
    std::vector<torch::Tensor> values;
    for (const auto& parameter : model_.list.parameters()) {
      values.push_back(parameter.value);
    }
    strategy_->begin_micro_step(micro);
    const int size = test_world().size();
    // All of it is the root unit, so that techniques that gather parameters do so here.
    const auto loss = model::run_unit(model_.list, 0, at::empty({0}), [&](const torch::Tensor& /*input*/) {
      return model_.loss_sum(values, step, micro, test_world().rank(), size, on_hidden);
    });
    backward(loss, size, options_.micro_steps);
    strategy_->end_micro_step();
  }

  void step(std::int64_t index) {
    strategy_->begin_step();
    for (std::int64_t micro = 0; micro < options_.micro_steps; ++micro) {
      micro_step(index, micro);
    }
    summary = strategy_->finish_gradients();
    gradients = copies(strategy_->gather_gradients());
    strategy_->update(0.01, clip_ > 0 ? clip_coefficient(clip_, summary.norm) : 1.0F);
    strategy_->end_step();
    parameters = copies(strategy_->gather_parameters());
  }

  [[nodiscard]] comm::Communicator& communicator() { return stack_.communicator(); }
  [[nodiscard]] parallel::Strategy& strategy() { return *strategy_; }
  [[nodiscard]] TinyModel& model() { return model_; }
  [[nodiscard]] comm::CollectiveCounts& counts() { return stack_.counts(); }

  /// Of the last step: gradients reduced and not yet clipped; full on rank 0.
  parallel::GradientSummary summary;
  std::vector<parallel::NamedTensor> gradients;
  std::vector<parallel::NamedTensor> parameters;
  std::function<void()> on_hidden;

 private:
  parallel::StrategyOptions options_;
  double clip_;
  comm::CommunicatorStack stack_;  // outlives the strategy
  TinyModel model_;
  std::unique_ptr<parallel::Strategy> strategy_;
};

}  // namespace shardmark::testing
