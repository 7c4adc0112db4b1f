#pragma once
// A chain of small blocks that every technique can train over ranks that are threads, and what such a run counted.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/counting_communicator.hpp"
#include "model/unit.hpp"
#include "parallel/flat_strategy.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::parallel {

using model::Init;

inline constexpr std::int64_t kWidth = 24;

struct Shape {
  std::int64_t blocks = 3;
  bool head = false;        // a tensor of the root used after the blocks
  bool extra = false;       // a tensor of block 2 that no loss depends on
  bool empty_unit = false;  // a last unit of one empty tensor
  bool empty_first_unit = false;
  std::vector<std::int64_t> frozen{};  // units
  bool checkpointing = false;
  bool shared = false;            // blocks use a tensor of block 1 too
  std::int64_t frozen_below = 0;  // this block applies a frozen matrix of its own below the one that trains
  std::int64_t width = kWidth;
  bool frozen_between = false;  // the root applies a frozen matrix of its own between block 1 and block 2
};

/// Applies a frozen matrix whose values must still be there when backward needs them for the input's gradient. Throws if they
/// were freed by then: reading them would end the process.
inline torch::Tensor apply_frozen(const torch::Tensor& x, const torch::Tensor& weight) {
  torch::Tensor out = at::linear(x.to(weight.scalar_type()), weight);
  if (out.requires_grad()) {
    out.register_hook([weight](const torch::Tensor& /*gradient*/) {
      if (weight.storage().nbytes() == 0) {
        throw std::logic_error("a frozen matrix was freed before the gradient of its input was computed");
      }
    });
  }
  return out;
}

class Chain {
 public:
  explicit Chain(const Shape& shape) : shape_(shape) {
    if (shape.head) {
      head_ = &list.add("head", {shape.width, shape.width}, Init::normal(0, 0.2));
      head_->behind_units = true;
    }
    if (shape.frozen_between) {
      between_ = &list.add("between", {shape.width, shape.width}, Init::normal(0, 0.2));
      between_->trainable = false;
    }
    for (std::int64_t block = 1; block <= shape.blocks; ++block) {
      const std::string name = "block" + std::to_string(block);
      list.begin_unit(name);
      order.push_back(static_cast<std::size_t>(block - 1));
      weights_.push_back(&list.add(name + ".weight", {shape.width, shape.width}, Init::normal(0, 0.2)));
      if (shape.frozen_below == block) {
        below_ = &list.add(name + ".below", {shape.width, shape.width}, Init::normal(0, 0.2));
        below_->trainable = false;
      }
      if (shape.extra && block == 2) {
        static_cast<void>(list.add(name + ".extra", {5}, Init::constant(1)));
      }
    }
    if (shape.empty_unit) {
      list.begin_unit("empty");
      nothing_ = &list.add("empty.tensor", {0, shape.width}, Init::constant(0));
    }
    for (auto& parameter : list.parameters()) {
      for (const auto unit : shape.frozen) {
        parameter.trainable = parameter.trainable && parameter.unit != unit;
      }
    }
    list.set_checkpointing(shape.checkpointing);
  }

  torch::Tensor loss(std::int64_t rows_from) {
    torch::Tensor x = torch::empty({4, shape_.width});
    model::fill_initial({x.data_ptr<float>(), static_cast<std::size_t>(4 * shape_.width)}, Init::normal(0, 1), 11, "x",
                        rows_from * shape_.width);
    const auto all = [&](const torch::Tensor& input) {
      torch::Tensor h = input;
      for (const std::size_t i : order) {
        h = model::run_unit(
            list, static_cast<std::int64_t>(i) + 1, h,
            [this, i](const torch::Tensor& entered) {
              const auto& weight = shape_.shared ? weights_[0] : weights_[i];
              const bool frozen_first = shape_.frozen_below == static_cast<std::int64_t>(i) + 1;
              const torch::Tensor x_in =
                  (frozen_first ? apply_frozen(entered, below_->value) : entered).to(weight->value.scalar_type());
              return x_in + at::tanh(at::linear(x_in, weight->value));
            },
            true);
        if (between_ != nullptr && i == 0) {
          h = apply_frozen(h, between_->value);
        }
      }
      if (nothing_ != nullptr) {
        h = model::run_unit(list, static_cast<std::int64_t>(weights_.size()) + 1, h,
                            [this](const torch::Tensor& entered) { return entered + nothing_->value.sum(); });
      }
      return head_ != nullptr ? at::linear(h.to(head_->value.scalar_type()), head_->value) : h;
    };
    const bool in_root = head_ != nullptr || between_ != nullptr;
    return (in_root ? model::run_unit(list, 0, x, all) : all(x)).to(at::kFloat).square().sum();
  }

  model::ParameterList list;
  std::vector<std::size_t> order;  // of the blocks, counted from 0; may be changed between steps

 private:
  Shape shape_;
  model::Parameter* head_ = nullptr;
  model::Parameter* between_ = nullptr;
  model::Parameter* below_ = nullptr;
  model::Parameter* nothing_ = nullptr;
  std::vector<model::Parameter*> weights_;
};

inline StrategyOptions sgd() {
  StrategyOptions options;
  options.optimizer.name = "sgd";
  return options;
}

inline void run_step(Strategy& strategy, Chain& chain, std::int64_t first_row, std::int64_t micro_steps = 1) {
  strategy.begin_step();
  for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
    strategy.begin_micro_step(micro);
    chain.loss(first_row + 4 * micro).backward();
    strategy.end_micro_step();
  }
  EXPECT_TRUE(strategy.finish_gradients().finite);
  strategy.update(0.01, 1);
  strategy.end_step();
}

/// Counted bytes of gradients and parameters of the second step less the predicted ones, on rank 0; and its parameters.
struct Outcome {
  double counted = 0;
  double predicted = 0;
  std::vector<NamedTensor> parameters;
};

inline Outcome run_on_threads(int ranks, const Shape& shape, const std::string& technique, const StrategyOptions& options) {
  Outcome outcome;
  testing::on_threads(ranks, [&](int rank, comm::Communicator& all) {
    auto counting = comm::CountingCommunicator(all.split(0, "world"));
    Chain chain(shape);
    const auto strategy = make_strategy(technique, options, counting);
    strategy->prepare(chain.list, {});
    run_step(*strategy, chain, rank * 100, options.micro_steps);
    counting.counts().reset();
    run_step(*strategy, chain, 1000 + rank * 100, options.micro_steps);
    double counted = 0;
    for (const auto& row : counting.counts().rows()) {
      if (row.purpose == comm::Purpose::gradient || row.purpose == comm::Purpose::parameter) {
        counted += row.wire_bytes;
      }
    }
    auto parameters = strategy->gather_parameters();
    if (rank == 0) {
      outcome = {counted, strategy->payload_per_step().bytes, std::move(parameters)};
    }
  });
  return outcome;
}

inline bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto left = a[i].values.contiguous();
    const auto right = b[i].values.contiguous();
    if (a[i].name != b[i].name || left.nbytes() != right.nbytes() ||
        std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace shardmark::parallel
