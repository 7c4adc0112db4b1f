#pragma once
// Calls back when autograd has finished a leaf's gradient.

#include <torch/torch.h>

#include <functional>
#include <utility>

namespace shardmark::parallel {

/// Lives as long as the gradients of one leaf are watched. The call comes in the thread that runs backward.
class GradientHook {
 public:
  GradientHook(const torch::Tensor& leaf, std::function<void()> on_ready)
      : accumulator_(torch::autograd::impl::grad_accumulator(leaf)) {
    accumulator_->add_post_hook(std::make_unique<Call>(std::move(on_ready)));
  }

 private:
  struct Call final : torch::autograd::FunctionPostHook {
    explicit Call(std::function<void()> callback) : on_ready(std::move(callback)) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list& /*inputs*/) override {
      on_ready();
      return outputs;
    }
    std::function<void()> on_ready;
  };

  // Its smart pointer's type differs between LibTorch versions. Autograd holds it weakly: without this the hook would go.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<torch::Tensor>())) accumulator_;
};

}  // namespace shardmark::parallel
