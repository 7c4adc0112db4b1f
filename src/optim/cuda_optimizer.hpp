#pragma once
// Optimizers by our own kernels, one pass over each segment, driven by a step's scalars where they lie: the host enqueues and
// waits for nothing. Made for ranges in the memory of a CUDA device; ranges in host memory are updated by the kernels' host
// builds, at once, which is how tests hold this code without a device.

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/step_scalars.hpp"
#include "optim/stateful_optimizer.hpp"

namespace shardmark::optim {

class CudaOptimizer : public StatefulOptimizer {
 public:
  CudaOptimizer(std::vector<std::string> state_names, const OptimizerOptions& options);

  bool set_working(std::vector<at::Tensor> working) override;

  /// Starts one update of all ranges. `scalars` lie where the ranges do, are those of the finished norm, and are read in the
  /// order of `stream` (a cudaStream_t); they say whether the step changes anything and how gradients are scaled.
  void begin_step(const kernels::StepScalars* scalars, void* stream);
  /// Updates one range; gradients stay as they are.
  void update(std::size_t range, double lr, void* stream);

  /// Updates applied so far. Waits for the device.
  [[nodiscard]] std::int64_t steps() const override;

  [[nodiscard]] bool on_device() const override { return true; }
  /// The same on the stream on which OptimizerOptions::device computes.
  void begin_step_on_device(const kernels::StepScalars* scalars) override;
  /// `coefficient` is that of the scalars.
  void update(std::size_t range, double lr, float coefficient) override;
  /// What drives the other optimizers: a broken invariant here.
  void begin_step() override;

 protected:
  /// Enqueues one segment's update.
  virtual void update_segment(std::size_t range, const Segment& segment, double lr, void* stream) = 0;

  [[nodiscard]] const OptimizerOptions& options() const { return options_; }
  [[nodiscard]] const Range& bound(std::size_t range) const { return ranges_[range]; }
  [[nodiscard]] const at::Tensor& working(std::size_t range) const { return working_[range]; }
  [[nodiscard]] bool on_cuda() const { return numbers_.defined() && numbers_.is_cuda(); }
  /// The step's numbers with bias corrections of the betas as they are, and of the betas rounded to fp32, which codes use.
  [[nodiscard]] const kernels::UpdateState* numbers() const { return state_at(0); }
  [[nodiscard]] const kernels::UpdateState* fp32_numbers() const { return state_at(1); }

 private:
  void take(std::vector<Range> ranges) override;
  void release() override;
  [[nodiscard]] void* stream() const;
  [[nodiscard]] kernels::UpdateState* state_at(std::size_t index) const;

  OptimizerOptions options_;
  std::vector<Range> ranges_;
  std::vector<at::Tensor> working_;
  at::Tensor numbers_;  // bytes of two kernels::UpdateState, beside the ranges
};

/// sgd, adam, adamw and adamw8bit. Throws base::ConfigError for another name.
[[nodiscard]] std::unique_ptr<CudaOptimizer> make_cuda_optimizer(const OptimizerOptions& options);

}  // namespace shardmark::optim
