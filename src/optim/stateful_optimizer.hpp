#pragma once
// What optimizers with states share: states by range and kind, the step count, and how states move when ranges are cut anew.
// Inside the optim folder only.

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace shardmark::optim {

/// Where in one kind's tensor the states of some elements lie.
struct StatePlace {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class StatefulOptimizer : public Optimizer {
 public:
  StatefulOptimizer(std::vector<std::string> state_names, const OptimizerOptions& options);

  void bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) override;
  void unbind() override { release(); }
  void relayout(const std::vector<RangeLayout>& ranges, const std::vector<StateMove>& moves) override;
  void begin_step() override;

  [[nodiscard]] const std::vector<std::string>& state_names() const override { return state_names_; }
  [[nodiscard]] const std::vector<std::vector<at::Tensor>>& states() const override { return states_; }
  [[nodiscard]] std::int64_t state_bytes(const RangeLayout& range) const override;
  [[nodiscard]] std::int64_t steps() const override { return steps_; }

 protected:
  /// Takes up ranges whose states are in `states()`.
  virtual void take(std::vector<Range> ranges) = 0;
  /// Lets go of them.
  virtual void release() = 0;
  /// Elements of a kind's tensor for a range, and their type.
  [[nodiscard]] virtual std::int64_t numel_of(const RangeLayout& range, std::size_t kind) const = 0;
  [[nodiscard]] virtual at::ScalarType type_of(std::size_t kind) const = 0;
  /// Of `numel` elements of one tensor from `element` on; absent if this kind holds none of them.
  [[nodiscard]] virtual std::optional<StatePlace> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element,
                                                           std::int64_t numel) const = 0;

  /// Of the bound ranges.
  [[nodiscard]] const std::vector<RangeLayout>& layouts() const { return layouts_; }
  /// The step count as the fused calls take it.
  [[nodiscard]] const at::Tensor& step_tensor() const { return step_; }

 private:
  [[nodiscard]] at::Tensor zeroed(const RangeLayout& range, std::size_t kind) const;

  std::vector<std::string> state_names_;
  device::MemoryCategory category_;   // of the states
  at::Device device_ = at::kCPU;      // of the states
  std::vector<RangeLayout> layouts_;  // of the states
  std::vector<std::vector<at::Tensor>> states_;
  bool relayouted_ = false;  // states_ wait for their ranges
  at::Tensor step_;
  std::int64_t steps_ = 0;
};

}  // namespace shardmark::optim
