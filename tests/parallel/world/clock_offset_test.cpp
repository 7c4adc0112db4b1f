// Offsets between the clocks of ranks, with clocks that a test sets wrong.

#include "world/clock_offset.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/clock.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {
namespace {

TEST(ClockOffset, RanksOfOneNodeShareAClock) {
  const auto found = world::measure_clock_offset(test_world());
  EXPECT_ON_ALL_RANKS(test_world().num_nodes() > 1 || (found.offset_s == 0 && found.uncertainty_s == 0));
}

TEST(ClockOffset, IsFoundToWithinItsUncertainty) {
  const double ahead_s = 1000.0 * test_world().rank();
  const auto found = world::measure_clock_offset(
      test_world(), {.one_clock_a_node = false, .clock = [ahead_s] { return base::now_s() + ahead_s; }});
  // Rank 0 reads its clock between the two readings of a round trip, so the offset is off by half of it at most. The processes
  // share one clock here, so the truth is known but for the rounding of readings near 1e6 s: below 1e-9.
  EXPECT_ON_ALL_RANKS(std::abs(found.offset_s - ahead_s) <= found.uncertainty_s + 1e-9);
  EXPECT_ON_ALL_RANKS((found.uncertainty_s > 0) == (test_world().rank() > 0));
  EXPECT_ON_ALL_RANKS(found.uncertainty_s < 1);
}

TEST(ClockOffset, TheShortestRoundTripCounts) {
  // Trip i starts at 100 i and takes 10 s, the third 2 s; rank 0 reads 100 i + 1 within it. The third alone gives offset 0.
  constexpr int kTrips = 5;
  int reading = 0;
  const bool answers = test_world().rank() == 0;
  const auto clock = [&reading, answers]() -> double {
    const int at = reading++;
    if (answers) {
      return 100 * (at % kTrips) + 1;
    }
    const int trip = at / 2;
    return 100 * trip + (at % 2 == 0 ? 0 : trip == 2 ? 2 : 10);
  };
  const auto found =
      world::measure_clock_offset(test_world(), {.round_trips = kTrips, .one_clock_a_node = false, .clock = clock});
  EXPECT_ON_ALL_RANKS(found.offset_s == 0 && found.uncertainty_s == (answers ? 0 : 1));
}

}  // namespace
}  // namespace shardmark::testing
