#pragma once
// Shows rank 0's progress: a bar at a terminal, one line every few seconds in a log.

#include <cstdint>

namespace shardmark::train {

class Progress {
 public:
  /// `total_steps` of the run; shows nothing where `visible` is false (other ranks).
  Progress(std::int64_t total_steps, bool visible);
  /// Called after each step; costs a clock reading unless a line is due. `samples`: of the step, over all ranks.
  void step_done(std::int64_t step, double loss, std::int64_t samples, double now_s);
  /// Ends the bar's line.
  void finish();

 private:
  std::int64_t total_steps_;
  bool visible_;
  bool terminal_;
  bool drawn_ = false;
  double interval_s_;
  double start_s_ = -1;
  double last_s_ = -1;
  std::int64_t samples_ = 0;
  std::int64_t samples_at_last_ = 0;
  std::int64_t first_step_ = 0;
};

}  // namespace shardmark::train
