#include "train/unit_trace.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace shardmark::train {

UnitTrace::UnitTrace(base::Trace& trace, model::ParameterList& list) : trace_(trace), list_(list), inner_(list.observer()) {
  for (const auto& unit : list_.units()) {
    forward_names_.push_back(trace_.intern("forward " + unit));
    backward_names_.push_back(trace_.intern("backward " + unit));
  }
  // Passes nest no deeper than there are units, but for one that runs within itself.
  forward_.reserve(list_.units().size());
  backward_.reserve(list_.units().size());
  list_.set_observer(this);
}

UnitTrace::~UnitTrace() {
  list_.set_observer(inner_);
}

void UnitTrace::before_forward(std::int64_t unit, bool input_needs_gradient) {
  const auto name = forward_names_[static_cast<std::size_t>(unit)];
  forward_.push_back({unit, trace_.add(base::TraceKind::unit, name, base::now_s())});
  if (inner_ != nullptr) {
    inner_->before_forward(unit, input_needs_gradient);
  }
}

void UnitTrace::after_forward(std::int64_t unit) {
  if (inner_ != nullptr) {
    inner_->after_forward(unit);
  }
  if (!forward_.empty()) {
    trace_.end(forward_.back().event, base::now_s());
    forward_.pop_back();
  }
}

void UnitTrace::before_backward(std::int64_t unit) {
  const auto name = backward_names_[static_cast<std::size_t>(unit)];
  backward_.push_back({unit, trace_.add(base::TraceKind::unit, name, base::now_s())});
  if (inner_ != nullptr) {
    inner_->before_backward(unit);
  }
}

void UnitTrace::after_input_gradient(std::int64_t unit) {
  if (inner_ != nullptr) {
    inner_->after_input_gradient(unit);
  }
  if (std::ranges::find(backward_, unit, &Open::unit) == backward_.end()) {
    return;  // nothing behind the unit asked for its backward pass
  }
  // What it encloses and had no input gradient to wait for ends with it.
  const double now = base::now_s();
  bool found = false;
  while (!found) {
    found = backward_.back().unit == unit;
    trace_.end(backward_.back().event, now);
    backward_.pop_back();
  }
}

void UnitTrace::end_backward() {
  const double now = base::now_s();
  for (const auto& open : backward_) {
    trace_.end(open.event, now);
  }
  backward_.clear();
}

}  // namespace shardmark::train
