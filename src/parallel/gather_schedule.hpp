#pragma once
// Decides which units to gather ahead of use: pure bookkeeping, no tensors, no communication. All ranks that see the same
// visits take the same decisions, so their collectives match.

#include <cstdint>
#include <vector>

namespace shardmark::parallel {

class GatherSchedule {
 public:
  struct Options {
    std::int64_t prefetch = 1;        // units ahead of use; the root may come beside them
    std::int64_t prefetch_bytes = 0;  // and their bytes, 0 = no limit
    std::int64_t budget_bytes = 0;    // most held at once, 0 = no limit
  };

  /// `unit_bytes`: of each unit when whole; units of 0 bytes are never gathered. Unit 0 encloses the others.
  GatherSchedule(std::vector<std::int64_t> unit_bytes, Options options);

  /// The unit is about to be used. Appends to `start` what to gather now, in order: the unit itself if it is not held, then
  /// those ahead. The first pass records the order of visits; a later pass that leaves it is recorded anew from there, and what
  /// was gathered ahead by the old order is appended to `drop`: free it before anything is started; it counts as released.
  void visit(std::int64_t unit, std::vector<std::int64_t>& start, std::vector<std::int64_t>& drop);
  /// The unit's memory was freed; may allow more to be gathered ahead.
  void release(std::int64_t unit, std::vector<std::int64_t>& start);
  /// The pass is over: appends all units still held to `leftover`; they count as released.
  void end_pass(std::vector<std::int64_t>& leftover);

  [[nodiscard]] bool holds(std::int64_t unit) const { return state(unit) != State::none; }
  [[nodiscard]] std::int64_t held_bytes() const { return held_bytes_; }
  [[nodiscard]] std::int64_t most_held_bytes() const { return most_held_bytes_; }
  /// Visits in recorded order.
  [[nodiscard]] const std::vector<std::int64_t>& order() const { return order_; }

 private:
  enum class State : std::uint8_t { none, ahead, used };
  [[nodiscard]] State state(std::int64_t unit) const { return states_[static_cast<std::size_t>(unit)]; }
  [[nodiscard]] std::int64_t bytes(std::int64_t unit) const { return unit_bytes_[static_cast<std::size_t>(unit)]; }
  void hold(std::int64_t unit, State state);
  void drop(std::int64_t unit);
  void look_ahead(std::vector<std::int64_t>& start);

  std::vector<std::int64_t> unit_bytes_;
  Options options_;
  std::vector<State> states_;
  std::vector<std::int64_t> order_;
  std::size_t cursor_ = 0;
  bool recording_ = true;
  std::int64_t held_bytes_ = 0;
  std::int64_t most_held_bytes_ = 0;
};

}  // namespace shardmark::parallel
