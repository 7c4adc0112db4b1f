#pragma once
// How far the clocks of the ranks' hosts are apart: monotonic clocks start anywhere, so times of two hosts mean nothing beside
// each other without this.

#include <functional>

#include "world/world.hpp"

namespace shardmark::world {

struct ClockOffset {
  double offset_s = 0;       // this rank's clock - rank 0's
  double uncertainty_s = 0;  // the offset was right to within this when it was measured
};

struct ClockOptions {
  int round_trips = 64;
  bool one_clock_a_node = true;     // ranks of a node share its first rank's offset, those of rank 0's node have none
  std::function<double()> clock{};  // another clock than base::now_s, for tests
};

/// Measures against rank 0, rank after rank: of all round trips the shortest counts, and rank 0 read its clock within it.
/// Collective; deadlines and notices as in World::poll.
[[nodiscard]] ClockOffset measure_clock_offset(World& world, const ClockOptions& options = {});

}  // namespace shardmark::world
