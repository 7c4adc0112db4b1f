#pragma once
// The definition of a training step under `ordered`, written down as plainly as possible and sharing no code with
// src/parallel: every rank computes its own micro-gradients by autograd on whole copies, sends all of them to all ranks, and
// every rank adds everything itself. Only the optimizer, a function of flat ranges, is the program's own.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "optim/optimizer.hpp"
#include "tests/parallel/parallel/tiny_model.hpp"
#include "tests/support/rank_data.hpp"

namespace shardmark::testing {

/// The L2 norm by integers: squares below 2^62 after scaling by a power of two, rounded to whole numbers, added exactly.
inline double norm_by_integers(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  const int shift = 30 - std::ilogb(largest);
  unsigned __int128 sum = 0;
  for (const float value : values) {
    const double scaled = std::ldexp(static_cast<double>(value), shift);
    sum += static_cast<std::uint64_t>(std::llrint(scaled * scaled));
  }
  return std::ldexp(std::sqrt(static_cast<double>(sum)), -shift);
}

/// Collective: all ranks step together.
class Definition {
 public:
  Definition(const parallel::StrategyOptions& options, const TinyOptions& tiny, double clip)
      : options_(options), clip_(clip), model_(tiny), optimizer_(optim::make_optimizer(options.optimizer)) {
    std::vector<optim::Segment> segments;
    std::int64_t padded = 0;
    for (const auto& parameter : model_.list.parameters()) {
      torch::Tensor value = at::empty(parameter.shape, at::kFloat);
      const std::span<float> out(value.data_ptr<float>(), static_cast<std::size_t>(value.numel()));
      model::fill_initial(out, parameter.init, options.seed, parameter.name, 0);
      values_.push_back(value.requires_grad_(parameter.trainable));
      if (parameter.trainable) {
        // 16 elements are 64 bytes: vectors without tails, as in every flat buffer of the program.
        const std::int64_t end = padded + (value.numel() + 15) / 16 * 16;
        segments.push_back({padded, end, !options.decay_matrices_only || parameter.shape.size() > 1});
        padded = end;
      }
    }
    flat_values_ = at::zeros({padded}, at::kFloat);
    flat_gradients_ = at::zeros({padded}, at::kFloat);
    for_each_range([&](const torch::Tensor& value, std::int64_t begin, std::size_t /*plain*/) {
      std::memcpy(flat_values_.data_ptr<float>() + begin, value.const_data_ptr(), value.nbytes());
    });
    optimizer_->bind({{flat_values_, flat_gradients_, segments}}, {});
  }

  void step(std::int64_t index) {
    const auto by_rank = micro_gradients_of_all_ranks(index);
    sum_ = options_.no_sync ? summed_then_reduced(by_rank) : reduced_then_summed(by_rank);
    norm = norm_by_integers(sum_);
    coefficient = clip_ > 0 ? clip_coefficient(clip_, norm) : 1.0F;
    for_each_range([&](const torch::Tensor& value, std::int64_t begin, std::size_t plain) {
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        const float gradient = sum_[plain + static_cast<std::size_t>(i)];
        flat_gradients_.data_ptr<float>()[begin + i] = coefficient == 1.0F ? gradient : gradient * coefficient;
      }
    });
    optimizer_->begin_step();
    optimizer_->update(0, 0.01, 1.0F);
    for_each_range([&](const torch::Tensor& value, std::int64_t begin, std::size_t /*plain*/) {
      std::memcpy(value.data_ptr(), flat_values_.const_data_ptr<float>() + begin, value.nbytes());
    });
  }

  /// Whole tensors in order of declaration; gradients of trainable parameters only, before clipping.
  [[nodiscard]] std::vector<parallel::NamedTensor> parameters() const {
    std::vector<parallel::NamedTensor> named;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      named.push_back({model_.list.parameters()[i].name, values_[i].detach()});
    }
    return named;
  }
  [[nodiscard]] std::vector<parallel::NamedTensor> gradients() {
    std::vector<parallel::NamedTensor> named;
    std::size_t at = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].requires_grad()) {
        torch::Tensor gradient = at::empty(values_[i].sizes(), at::kFloat);
        std::memcpy(gradient.data_ptr(), sum_.data() + at, gradient.nbytes());
        at += static_cast<std::size_t>(gradient.numel());
        named.push_back({model_.list.parameters()[i].name, gradient});
      }
    }
    return named;
  }

  double norm = 0;
  float coefficient = 0;

 private:
  using Gradients = std::vector<std::vector<float>>;  // by micro-step, all trainable parameters one after another

  /// Calls with (value, begin in the padded flat range, begin in the plain list) of every trainable parameter.
  template <typename Call>
  void for_each_range(Call&& call) {
    const torch::NoGradGuard no_grad;
    std::int64_t begin = 0;
    std::size_t plain = 0;
    for (const auto& value : values_) {
      if (value.requires_grad()) {
        call(value, begin, plain);
        begin += (value.numel() + 15) / 16 * 16;
        plain += static_cast<std::size_t>(value.numel());
      }
    }
  }

  [[nodiscard]] std::vector<Gradients> micro_gradients_of_all_ranks(std::int64_t step) {
    std::vector<float> mine;
    const int size = test_world().size();
    for (std::int64_t micro = 0; micro < options_.micro_steps; ++micro) {
      backward(model_.loss_sum(values_, step, micro, test_world().rank(), size), size, options_.micro_steps);
      for (auto& value : values_) {
        if (value.requires_grad()) {
          auto& gradient = value.mutable_grad();
          const torch::Tensor dense = gradient.defined() ? gradient.contiguous() : at::zeros(value.sizes(), at::kFloat);
          const auto* from = dense.const_data_ptr<float>();
          mine.insert(mine.end(), from, from + dense.numel());
          gradient.reset();
        }
      }
    }
    std::vector<Gradients> all;
    for (const auto& bytes : test_world().all_gather(std::as_bytes(std::span(mine)))) {
      const std::size_t length = mine.size() / static_cast<std::size_t>(options_.micro_steps);
      Gradients theirs;
      for (std::size_t begin = 0; begin < mine.size(); begin += length) {
        theirs.emplace_back(length);
        std::memcpy(theirs.back().data(), bytes.data() + begin * sizeof(float), length * sizeof(float));
      }
      all.push_back(std::move(theirs));
    }
    return all;
  }

  /// R(x): rounding to precision.reduce, by the bits: to the nearest number with 8 bits of mantissa, ties to even. For finite
  /// x.
  [[nodiscard]] float rounded_for_reduction(float value) const {
    if (options_.precision.reduce == base::DType::fp32) {
      return value;
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) & 0xFFFF0000U);
  }

  /// The ordered sum over ranks: R, then fp32 additions along the tree split at the largest power of two below n, then R.
  [[nodiscard]] std::vector<float> over_ranks(const std::vector<std::vector<float>>& by_rank) const {
    std::vector<float> sum(by_rank.front().size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      std::vector<float> values;
      for (const auto& rank : by_rank) {
        values.push_back(rounded_for_reduction(rank[i]));
      }
      sum[i] = rounded_for_reduction(serial_tree(values, 0, values.size()));
    }
    return sum;
  }

  /// sync: G += R(g), each micro-step reduced alone.
  [[nodiscard]] std::vector<float> reduced_then_summed(const std::vector<Gradients>& by_rank) const {
    std::vector<float> total;
    for (std::size_t micro = 0; micro < by_rank.front().size(); ++micro) {
      std::vector<std::vector<float>> parts;
      for (const auto& rank : by_rank) {
        parts.push_back(rank[micro]);
      }
      add(total, over_ranks(parts));
    }
    return total;
  }

  /// no_sync: G_r += g on every rank, then R(G_r).
  [[nodiscard]] std::vector<float> summed_then_reduced(const std::vector<Gradients>& by_rank) const {
    std::vector<std::vector<float>> sums(by_rank.size());
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (const auto& micro : by_rank[rank]) {
        add(sums[rank], micro);
      }
    }
    return over_ranks(sums);
  }

  static void add(std::vector<float>& total, const std::vector<float>& part) {
    if (total.empty()) {
      total = part;
      return;
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] += part[i];
    }
  }

  parallel::StrategyOptions options_;
  double clip_;
  TinyModel model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<torch::Tensor> values_;
  torch::Tensor flat_values_;
  torch::Tensor flat_gradients_;
  std::vector<float> sum_;
};

/// Whether what this rank holds of `found` equals `expected` bit for bit; rank 0 must hold all of it.
inline ::testing::AssertionResult equal_tensors(const std::vector<parallel::NamedTensor>& found,
                                                const std::vector<parallel::NamedTensor>& expected) {
  if (found.empty() && test_world().rank() != 0) {
    return ::testing::AssertionSuccess();
  }
  if (found.size() != expected.size()) {
    return ::testing::AssertionFailure() << found.size() << " tensors instead of " << expected.size();
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].name != expected[i].name || !same_bits(found[i].values.contiguous(), expected[i].values)) {
      return ::testing::AssertionFailure() << found[i].name << ":\n"
                                           << found[i].values << "\ninstead of " << expected[i].name << ":\n"
                                           << expected[i].values;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace shardmark::testing
