#pragma once
// Steps whose results the host does not wait for: their numbers lie on the device, their times are events, and both are read
// for many steps at once. Knows nothing of what a step does.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "optim/step_scalars.hpp"

namespace shardmark::train {

struct StepTimes {
  double data_s = 0, forward_s = 0, backward_s = 0, optimizer_s = 0, total_s = 0;
};

class DeferredSteps {
 public:
  struct Step {
    optim::StepScalars scalars;
    StepTimes times;
  };

  /// Room for `capacity` steps of so many micro-steps between two reads. Both are lent.
  DeferredSteps(device::Device& device, comm::Communicator& communicator, std::int64_t capacity, std::int64_t micro_steps);

  /// Nothing is enqueued: the first step's time starts now.
  void start_block();
  /// The numbers of the next step, zeroed. Waits until the step before the one before is done. Throws as Communicator::wait.
  [[nodiscard]] optim::StepScalars* begin_step();
  /// The loss of the step begun: a scalar of fp64 that is its `loss`.
  [[nodiscard]] torch::Tensor loss() const;
  /// Marks, in this order: per micro-step the ends of loading, forward and backward, then of the reductions, then of the step.
  void mark();
  [[nodiscard]] at::Device device() const { return memory_.device(); }
  /// Waits for the device and hands out all steps since the last call, oldest first. Throws as Communicator::wait.
  [[nodiscard]] std::vector<Step> collect();

 private:
  [[nodiscard]] optim::StepScalars* scalars_of(std::int64_t step) const;
  [[nodiscard]] StepTimes times_of(std::int64_t step);

  device::Device& device_;
  comm::Communicator& communicator_;
  std::int64_t capacity_;
  std::int64_t micro_steps_;
  std::int64_t marks_per_step_;
  torch::Tensor memory_;                               // (capacity, doubles of StepScalars)
  std::vector<std::unique_ptr<device::Event>> marks_;  // the start, then every step's
  std::int64_t num_steps_ = 0;
  std::int64_t num_marks_ = 0;
};

}  // namespace shardmark::train
