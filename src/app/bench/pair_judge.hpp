#pragma once
// Which pairs are measured at the same time, and what their times say. Pure functions.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::app::bench {

/// Two of the nodes, or ranks, that `--pairs` compares, by number.
struct Pair {
  int first = 0;
  int second = 0;
  bool operator==(const Pair&) const = default;
};

struct PairTime {
  Pair pair;
  double time_s = 0;     // median
  double fastest_s = 0;  // call: what disturbs a call makes it slower, so that this one knows least of noise
};

/// A pair that takes more than so many times the median pair's time is bad: links that lost half of their lanes, or fell back
/// a generation, take twice as long.
inline constexpr double kBadFactor = 1.5;
/// Below so many bytes no pair is called bad: a link at half its speed shows as kBadFactor only where a message takes longer to
/// pass than to start, and a start of 2 us costs a link of 50 GB/s (400 Gbit/s, the fastest of today's network cards) 100 kB.
inline constexpr std::int64_t kLeastJudgedBytes = std::int64_t{128} << 10;
/// So many suspects at most are measured again: with more of them the trouble is no pair's.
inline constexpr std::size_t kMaxSuspects = 16;

/// Rounds of pairs such that every two meet once and nobody is in two pairs of a round.
[[nodiscard]] std::vector<std::vector<Pair>> make_rounds(int num_units);

/// The median time, of two middle ones the smaller: one slow unit of four makes half of all pairs slow.
[[nodiscard]] double typical_s(const std::vector<PairTime>& times);
/// Pairs above kBadFactor x `typical_s`, the slowest first.
[[nodiscard]] std::vector<PairTime> suspects_of(std::vector<PairTime> times, double typical_s);
/// Those of them whose fastest call is above it, too.
[[nodiscard]] std::vector<PairTime> bad_pairs_of(std::vector<PairTime> times, double typical_s);
/// Units of which every pair is among `bad`, where they have at least two.
[[nodiscard]] std::vector<int> bad_units(const std::vector<PairTime>& bad, int num_units);

/// Why times of this search cannot make a pair bad; "" if they can.
[[nodiscard]] std::string reason_for_no_verdict(int num_units, std::int64_t message_bytes, bool oversubscribed);

/// Halves of [0, num_units), their halves, and so on: each as [first, end) of two units at least, level by level.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> make_halves(int num_units);

}  // namespace shardmark::app::bench
