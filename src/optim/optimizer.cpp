#include "optim/optimizer.hpp"

#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"

namespace shardmark::optim {
namespace {

/// Views of one segment, made once so that a step allocates nothing.
struct Segment {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;   // exp_avg or momentum_buffer
  std::vector<at::Tensor> second;  // exp_avg_sq
  double weight_decay = 0;
};

/// What the fused optimizers share: the flat states and their views.
class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(OptimizerOptions options, std::vector<std::string> state_names)
      : options_(std::move(options)), state_names_(std::move(state_names)), step_(at::zeros({}, at::kFloat)) {}

  void bind(const at::Tensor& parameters, const at::Tensor& gradients, const std::vector<DecaySegment>& segments,
            std::vector<at::Tensor> states) override {
    SM_CHECK(parameters.numel() == gradients.numel(), "flat parameters and gradients differ in size");
    if (states.empty()) {
      const device::MemoryScope scope(device::MemoryCategory::optimizer_state);
      for (std::size_t i = 0; i < state_names_.size(); ++i) {
        states.push_back(at::zeros_like(parameters));
      }
    }
    SM_CHECK(states.size() == state_names_.size(), "wrong number of optimizer states");
    states_ = std::move(states);
    segments_.clear();
    for (const auto& part : segments) {
      const auto view = [&](const at::Tensor& flat) { return flat.narrow(0, part.begin, part.end - part.begin); };
      Segment segment;
      segment.parameters = {view(parameters)};
      segment.gradients = {view(gradients)};
      if (!states_.empty()) {
        segment.first = {view(states_[0])};
      }
      if (states_.size() > 1) {
        segment.second = {view(states_[1])};
      }
      segment.weight_decay = part.decayed ? options_.weight_decay : 0.0;
      segments_.push_back(std::move(segment));
    }
  }

  void step(double lr) override {
    ++steps_;
    step_.fill_(static_cast<float>(steps_));
    for (const auto& segment : segments_) {
      update(segment, lr);
    }
  }

  [[nodiscard]] std::vector<NamedState> states() const override {
    std::vector<NamedState> named;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      named.push_back({state_names_[i], states_[i]});
    }
    return named;
  }
  [[nodiscard]] std::int64_t state_bytes_per_element() const override {
    return static_cast<std::int64_t>(state_names_.size() * sizeof(float));
  }
  [[nodiscard]] std::int64_t steps() const override { return steps_; }

 protected:
  virtual void update(const Segment& segment, double lr) = 0;
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }
  [[nodiscard]] const at::Tensor& step_tensor() const { return step_; }
  [[nodiscard]] bool first_step() const { return steps_ == 1; }

 private:
  OptimizerOptions options_;
  std::vector<std::string> state_names_;
  std::vector<at::Tensor> states_;
  std::vector<Segment> segments_;
  at::Tensor step_;
  std::int64_t steps_ = 0;
};

class Sgd final : public FusedOptimizer {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : FusedOptimizer(options,
                       options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}) {}

 private:
  void update(const Segment& segment, double lr) override {
    at::_fused_sgd_(segment.parameters, segment.gradients, segment.first, segment.weight_decay, options().momentum, lr,
                    /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false, first_step());
  }
};

/// Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) with bias correction by the step count.
class Adam final : public FusedOptimizer {
 public:
  Adam(const OptimizerOptions& options, bool decoupled)
      : FusedOptimizer(options, {"exp_avg", "exp_avg_sq"}), decoupled_(decoupled) {}

 private:
  void update(const Segment& segment, double lr) override {
    const auto& o = options();
    const at::TensorList no_max_squares;
    const std::vector<at::Tensor> steps{step_tensor()};
    if (decoupled_) {
      at::_fused_adamw_(segment.parameters, segment.gradients, segment.first, segment.second, no_max_squares, steps, lr,
                        o.beta1, o.beta2, segment.weight_decay, o.eps, /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_adam_(segment.parameters, segment.gradients, segment.first, segment.second, no_max_squares, steps, lr, o.beta1,
                       o.beta2, segment.weight_decay, o.eps, /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  bool decoupled_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.name == "sgd") {
    return std::make_unique<Sgd>(options);
  }
  if (options.name == "adam" || options.name == "adamw") {
    return std::make_unique<Adam>(options, options.name == "adamw");
  }
  throw base::ConfigError("optimizer.name = \"" + options.name + "\": accepted are sgd, adam, adamw");
}

}  // namespace shardmark::optim
