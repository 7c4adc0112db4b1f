#include "optim/stateful_optimizer.hpp"

#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"

namespace shardmark::optim {

StatefulOptimizer::StatefulOptimizer(std::vector<std::string> state_names, const OptimizerOptions& options)
    : state_names_(std::move(state_names)),
      category_(options.offload ? device::MemoryCategory::offloaded : device::MemoryCategory::optimizer_state),
      step_(at::zeros({}, at::kFloat)) {}

void StatefulOptimizer::bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) {
  layouts_.clear();
  for (const auto& range : ranges) {
    SM_CHECK(range.parameters.numel() == range.gradients.numel(), "flat parameters and gradients differ in size");
    layouts_.push_back({range.parameters.numel(), range.segments});
    device_ = range.parameters.device();
  }
  if (!states.empty()) {
    states_ = std::move(states);
  } else if (!relayouted_) {
    states_.clear();
    for (const auto& layout : layouts_) {
      auto& made = states_.emplace_back();
      for (std::size_t kind = 0; kind < state_names_.size(); ++kind) {
        made.push_back(zeroed(layout, kind));
      }
    }
  }
  relayouted_ = false;
  SM_CHECK(states_.size() == ranges.size(), "optimizer states do not fit the ranges");
  for (const auto& of_range : states_) {
    SM_CHECK(of_range.size() == state_names_.size(), "wrong number of optimizer states");
  }
  take(std::move(ranges));
}

void StatefulOptimizer::relayout(const std::vector<RangeLayout>& ranges, const std::vector<StateMove>& moves) {
  std::vector<std::vector<at::Tensor>> fresh(ranges.size());
  for (std::size_t kind = 0; kind < state_names_.size(); ++kind) {
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      fresh[range].push_back(zeroed(ranges[range], kind));
    }
    for (const auto& move : moves) {
      const auto from = place_of(layouts_[move.from_range], kind, move.from, move.numel);
      const auto to = place_of(ranges[move.to_range], kind, move.to, move.numel);
      SM_CHECK(from.has_value() == to.has_value(), "a tensor's states change their kind");
      if (from) {
        fresh[move.to_range][kind]
            .narrow(0, to->begin, to->count)
            .copy_(states_[move.from_range][kind].narrow(0, from->begin, from->count));
      }
    }
    for (auto& old : states_) {
      old[kind] = at::Tensor();
    }
  }
  states_ = std::move(fresh);
  layouts_ = ranges;
  relayouted_ = true;
}

void StatefulOptimizer::begin_step() {
  ++steps_;
  step_.fill_(static_cast<float>(steps_));
}

std::int64_t StatefulOptimizer::state_bytes(const RangeLayout& range) const {
  std::int64_t bytes = 0;
  for (std::size_t kind = 0; kind < state_names_.size(); ++kind) {
    bytes += numel_of(range, kind) * static_cast<std::int64_t>(c10::elementSize(type_of(kind)));
  }
  return bytes;
}

at::Tensor StatefulOptimizer::zeroed(const RangeLayout& range, std::size_t kind) const {
  const device::MemoryScope scope(category_);
  return at::zeros({numel_of(range, kind)}, at::TensorOptions(type_of(kind)).device(device_));
}

}  // namespace shardmark::optim
