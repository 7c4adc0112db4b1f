#include "train/deferred_steps.hpp"

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "device/torch_device.hpp"

namespace shardmark::train {
namespace {

static_assert(sizeof(optim::StepScalars) % sizeof(double) == 0);
/// Steps that the host may be ahead of the device: enough to keep it busy, few enough that the host notices failures, signals
/// and deadlines by the step, and never fills the device's queue, where it could not look for them.
constexpr std::int64_t kAhead = 2;
constexpr std::int64_t kDoubles = sizeof(optim::StepScalars) / sizeof(double);

}  // namespace

DeferredSteps::DeferredSteps(device::Device& device, comm::Communicator& communicator, std::int64_t capacity,
                             std::int64_t micro_steps)
    : device_(device),
      communicator_(communicator),
      capacity_(capacity),
      micro_steps_(micro_steps),
      marks_per_step_(3 * micro_steps + 2) {
  const device::MemoryScope scope(device::MemoryCategory::other);
  memory_ = at::zeros({capacity_, kDoubles}, at::TensorOptions(device::torch_device(device)).dtype(at::kDouble));
  for (std::int64_t i = 0; i < 1 + capacity_ * marks_per_step_; ++i) {
    marks_.push_back(device_.make_event());
  }
  start_block();
}

void DeferredSteps::start_block() {
  SM_CHECK(num_steps_ == 0, "a block starts with steps that nobody collected");
  num_marks_ = 0;
  mark();
}

optim::StepScalars* DeferredSteps::scalars_of(std::int64_t step) const {
  return reinterpret_cast<optim::StepScalars*>(static_cast<double*>(memory_.data_ptr()) + step * kDoubles);
}

optim::StepScalars* DeferredSteps::begin_step() {
  SM_CHECK(num_steps_ < capacity_, "more steps than there is room for between two reads");
  if (num_steps_ >= kAhead) {
    communicator_.follow(*marks_[static_cast<std::size_t>((num_steps_ - kAhead + 1) * marks_per_step_)]);
  }
  memory_.select(0, num_steps_).zero_();
  ++num_steps_;
  return scalars_of(num_steps_ - 1);
}

torch::Tensor DeferredSteps::loss() const {
  static_assert(offsetof(optim::StepScalars, loss) == 0);
  return memory_.select(0, num_steps_ - 1).select(0, 0);
}

void DeferredSteps::mark() {
  device_.compute().record(*marks_.at(static_cast<std::size_t>(num_marks_)));
  ++num_marks_;
}

StepTimes DeferredSteps::times_of(std::int64_t step) {
  const auto between = [&](std::int64_t from, std::int64_t to) {
    return device_.seconds_between(*marks_[static_cast<std::size_t>(from)], *marks_[static_cast<std::size_t>(to)]);
  };
  const std::int64_t start = step * marks_per_step_;  // the end of the step before
  StepTimes times;
  for (std::int64_t micro = 0; micro < micro_steps_; ++micro) {
    const std::int64_t begin = start + 3 * micro;
    times.data_s += between(begin, begin + 1);
    times.forward_s += between(begin + 1, begin + 2);
    times.backward_s += between(begin + 2, begin + 3);
  }
  const std::int64_t end = start + marks_per_step_;
  times.backward_s += between(end - 2, end - 1);
  times.optimizer_s = between(end - 1, end);
  times.total_s = between(start, end);
  return times;
}

std::vector<DeferredSteps::Step> DeferredSteps::collect() {
  std::vector<Step> steps(static_cast<std::size_t>(num_steps_));
  if (num_steps_ == 0) {
    return steps;
  }
  SM_CHECK(num_marks_ == 1 + num_steps_ * marks_per_step_, "a step's marks are not complete");
  std::vector<optim::StepScalars> scalars(steps.size());
  communicator_.read(scalars.data(), memory_.const_data_ptr(), scalars.size() * sizeof(optim::StepScalars));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i] = {scalars[i], times_of(static_cast<std::int64_t>(i))};
  }
  num_steps_ = 0;
  return steps;
}

}  // namespace shardmark::train
