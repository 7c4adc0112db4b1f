#include "optim/optimizer.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "kernels/adam8bit.hpp"
#include "optim/block_adamw.hpp"
#include "optim/cuda_optimizer.hpp"
#include "optim/offloaded_optimizer.hpp"
#include "optim/stateful_optimizer.hpp"

namespace shardmark::optim {
namespace {

// Elements converted at a time where something does not rest in fp32: small enough for a cache, and a multiple of every
// alignment, so that vector loops split where they do without conversion.
constexpr std::int64_t kChunk = 16 * 1024;

/// fp32 views of one stretch: parameters, gradients and up to two states, as lists of one for the fused calls.
struct Stretch {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;   // exp_avg or momentum_buffer
  std::vector<at::Tensor> second;  // exp_avg_sq
};

/// A stretch as it rests, and where its weight decays.
struct Piece {
  Stretch resting;
  double weight_decay = 0;
  bool converts = false;
};

/// What the fused optimizers share: views made once so that a step allocates nothing, and conversion.
class FusedOptimizer : public StatefulOptimizer {
 public:
  FusedOptimizer(OptimizerOptions options, std::vector<std::string> state_names)
      : StatefulOptimizer(std::move(state_names), options), options_(std::move(options)) {}

  void update(std::size_t range, double lr, float coefficient) override {
    for (const auto& piece : pieces_[range]) {
      if (piece.converts) {
        update_converted(piece, lr, coefficient);
        continue;
      }
      if (coefficient != 1.0F) {
        piece.resting.gradients.front().mul_(coefficient);
      }
      apply(piece.resting, piece.weight_decay, lr);
    }
  }

 protected:
  virtual void apply(const Stretch& stretch, double weight_decay, double lr) = 0;
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }

 private:
  void take(std::vector<Range> ranges) override {
    pieces_.clear();
    bool converts = false;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      pieces_.push_back(cut(ranges[i], states()[i]));
      for (const auto& piece : pieces_.back()) {
        converts = converts || piece.converts;
      }
    }
    if (converts && scratch_.parameters.empty()) {
      const device::MemoryScope scope(device::MemoryCategory::workspace);
      for (auto* list : {&scratch_.parameters, &scratch_.gradients, &scratch_.first, &scratch_.second}) {
        *list = {at::zeros({kChunk}, at::kFloat)};
      }
    }
  }
  void release() override { pieces_.clear(); }
  [[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t /*kind*/) const override { return range.numel; }
  [[nodiscard]] at::ScalarType type_of(std::size_t /*kind*/) const override {
    return options_.state == base::DType::bf16 ? at::kBFloat16 : at::kFloat;
  }
  [[nodiscard]] std::optional<StatePlace> place_of(const RangeLayout& /*range*/, std::size_t /*kind*/, std::int64_t element,
                                                   std::int64_t numel) const override {
    return StatePlace{element, numel};
  }

  [[nodiscard]] std::vector<Piece> cut(const Range& range, const std::vector<at::Tensor>& states) const {
    std::vector<Piece> pieces;
    for (const auto& segment : range.segments) {
      const auto view = [&](const at::Tensor& flat) { return flat.narrow(0, segment.begin, segment.end - segment.begin); };
      Piece piece;
      piece.resting.parameters = {view(range.parameters)};
      piece.resting.gradients = {view(range.gradients)};
      if (!states.empty()) {
        piece.resting.first = {view(states[0])};
      }
      if (states.size() > 1) {
        piece.resting.second = {view(states[1])};
      }
      for (const auto* list : lists(piece.resting)) {
        piece.converts = piece.converts || (!list->empty() && list->front().scalar_type() != at::kFloat);
      }
      piece.weight_decay = segment.decayed ? options_.weight_decay : 0.0;
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }

  static std::array<const std::vector<at::Tensor>*, 4> lists(const Stretch& stretch) {
    return {&stretch.parameters, &stretch.gradients, &stretch.first, &stretch.second};
  }

  void update_converted(const Piece& piece, double lr, float coefficient) {
    const std::int64_t size = piece.resting.parameters.front().numel();
    for (std::int64_t begin = 0; begin < size; begin += kChunk) {
      const std::int64_t count = std::min(kChunk, size - begin);
      // fp32 is used where it rests; everything else goes through the scratch and, but for gradients, back.
      const auto widened = [&](const std::vector<at::Tensor>& resting, const std::vector<at::Tensor>& scratch) {
        if (resting.empty()) {
          return std::vector<at::Tensor>{};
        }
        const at::Tensor part = resting.front().narrow(0, begin, count);
        return std::vector<at::Tensor>{part.scalar_type() == at::kFloat ? part
                                                                        : scratch.front().narrow(0, 0, count).copy_(part)};
      };
      const auto write_back = [&](const std::vector<at::Tensor>& resting, const std::vector<at::Tensor>& used) {
        if (!resting.empty() && resting.front().scalar_type() != at::kFloat) {
          resting.front().narrow(0, begin, count).copy_(used.front());
        }
      };
      const Stretch used{widened(piece.resting.parameters, scratch_.parameters),
                         widened(piece.resting.gradients, scratch_.gradients), widened(piece.resting.first, scratch_.first),
                         widened(piece.resting.second, scratch_.second)};
      if (coefficient != 1.0F) {
        used.gradients.front().mul_(coefficient);
      }
      apply(used, piece.weight_decay, lr);
      write_back(piece.resting.parameters, used.parameters);
      write_back(piece.resting.first, used.first);
      write_back(piece.resting.second, used.second);
    }
  }

  OptimizerOptions options_;
  std::vector<std::vector<Piece>> pieces_;  // by range
  Stretch scratch_;
};

class Sgd final : public FusedOptimizer {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : FusedOptimizer(options,
                       options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}) {}

 private:
  void apply(const Stretch& stretch, double weight_decay, double lr) override {
    at::_fused_sgd_(stretch.parameters, stretch.gradients, stretch.first, weight_decay, options().momentum, lr,
                    /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/steps() == 1);
  }
};

/// Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) with bias correction by the step count.
class Adam final : public FusedOptimizer {
 public:
  Adam(const OptimizerOptions& options, bool decoupled)
      : FusedOptimizer(options, {"exp_avg", "exp_avg_sq"}), decoupled_(decoupled) {}

 private:
  void apply(const Stretch& stretch, double weight_decay, double lr) override {
    const auto& o = options();
    const at::TensorList no_max_squares;
    const std::vector<at::Tensor> steps{step_tensor()};
    if (decoupled_) {
      at::_fused_adamw_(stretch.parameters, stretch.gradients, stretch.first, stretch.second, no_max_squares, steps, lr,
                        o.beta1, o.beta2, weight_decay, o.eps, /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_adam_(stretch.parameters, stretch.gradients, stretch.first, stretch.second, no_max_squares, steps, lr, o.beta1,
                       o.beta2, weight_decay, o.eps, /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  bool decoupled_;
};

std::unique_ptr<Optimizer> make_update_rule(const OptimizerOptions& options) {
  if (options.name == "sgd") {
    return std::make_unique<Sgd>(options);
  }
  if (options.name == "adam" || options.name == "adamw") {
    return std::make_unique<Adam>(options, options.name == "adamw");
  }
  if (options.name == "adamw8bit") {
    return make_block_adamw(options);
  }
  throw base::ConfigError("optimizer.name = \"" + options.name + "\": accepted are sgd, adam, adamw, adamw8bit");
}

}  // namespace

void Optimizer::finish(std::size_t /*range*/) {}

bool Optimizer::set_working(std::vector<at::Tensor> /*working*/) {
  return false;
}

void Optimizer::begin_step_on_device(const kernels::StepScalars* /*scalars*/) {
  throw base::InvariantError("an optimizer of the host was asked to update on a device");
}

device::CategoryBytes Optimizer::persistent_bytes(const std::vector<RangeLayout>& ranges, base::DType /*parameters*/,
                                                  base::DType /*gradients*/) const {
  device::CategoryBytes bytes{};
  for (const auto& range : ranges) {
    bytes[static_cast<std::size_t>(device::MemoryCategory::optimizer_state)] += state_bytes(range);
  }
  return bytes;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (!options.offload && options.device != nullptr && options.device->cuda_index() >= 0) {
    return make_cuda_optimizer(options);
  }
  auto rule = make_update_rule(options);
  return options.offload ? make_offloaded(std::move(rule), options.offload()) : std::move(rule);
}

std::int64_t state_block(const std::string& name) {
  return name == "adamw8bit" ? kernels::kAdam8bitBlock : 1;
}

}  // namespace shardmark::optim
