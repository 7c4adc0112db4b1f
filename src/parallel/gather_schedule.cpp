#include "parallel/gather_schedule.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace shardmark::parallel {

GatherSchedule::GatherSchedule(std::vector<std::int64_t> unit_bytes, Options options)
    : unit_bytes_(std::move(unit_bytes)), options_(options), states_(unit_bytes_.size(), State::none) {}

void GatherSchedule::hold(std::int64_t unit, State state) {
  states_[static_cast<std::size_t>(unit)] = state;
  held_bytes_ += bytes(unit);
  most_held_bytes_ = std::max(most_held_bytes_, held_bytes_);
  SM_CHECK(options_.budget_bytes == 0 || held_bytes_ <= options_.budget_bytes,
           "gathered parameters exceed technique.live_parameters_mb");
}

void GatherSchedule::drop(std::int64_t unit) {
  states_[static_cast<std::size_t>(unit)] = State::none;
  held_bytes_ -= bytes(unit);
}

void GatherSchedule::visit(std::int64_t unit, std::vector<std::int64_t>& start, std::vector<std::int64_t>& drop_now) {
  if (bytes(unit) == 0) {
    return;
  }
  if (!recording_ && (cursor_ >= order_.size() || order_[cursor_] != unit)) {
    order_.resize(cursor_);
    recording_ = true;
    for (std::size_t other = 0; other < states_.size(); ++other) {
      if (states_[other] == State::ahead && static_cast<std::int64_t>(other) != unit) {
        drop_now.push_back(static_cast<std::int64_t>(other));
        drop(static_cast<std::int64_t>(other));
      }
    }
  }
  if (recording_) {
    order_.push_back(unit);
  }
  ++cursor_;
  if (state(unit) == State::none) {
    hold(unit, State::used);
    start.push_back(unit);
  }
  states_[static_cast<std::size_t>(unit)] = State::used;
  look_ahead(start);
}

void GatherSchedule::release(std::int64_t unit, std::vector<std::int64_t>& start) {
  if (state(unit) == State::none) {
    return;
  }
  drop(unit);
  look_ahead(start);
}

void GatherSchedule::look_ahead(std::vector<std::int64_t>& start) {
  if (recording_) {
    return;
  }
  std::int64_t ahead = 0;
  std::int64_t ahead_bytes = 0;
  for (std::size_t i = cursor_; i < order_.size() && ahead < options_.prefetch; ++i) {
    const std::int64_t next = order_[i];
    if (state(next) == State::ahead) {
      ++ahead;
      ahead_bytes += bytes(next);
      continue;
    }
    if (state(next) == State::used) {
      if (next == 0) {
        continue;  // the root stays while the units that it encloses come and go
      }
      return;  // still in use: it must be freed before it can be gathered for its next visit
    }
    ahead_bytes += bytes(next);
    if ((options_.budget_bytes > 0 && held_bytes_ + bytes(next) > options_.budget_bytes) ||
        (options_.prefetch_bytes > 0 && ahead_bytes > options_.prefetch_bytes)) {
      return;
    }
    hold(next, State::ahead);
    start.push_back(next);
    ++ahead;
  }
}

void GatherSchedule::end_pass(std::vector<std::int64_t>& leftover) {
  for (std::size_t unit = 0; unit < states_.size(); ++unit) {
    if (states_[unit] != State::none) {
      leftover.push_back(static_cast<std::int64_t>(unit));
      drop(static_cast<std::int64_t>(unit));
    }
  }
  order_.resize(cursor_);
  cursor_ = 0;
  recording_ = order_.empty();
}

}  // namespace shardmark::parallel
