#include "app/bench/pair_judge.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::app::bench {

std::vector<std::vector<Pair>> make_rounds(int num_units) {
  // The circle method: one stays, the others turn by a place each round. A number that does not exist gives the free round.
  const int even = num_units + num_units % 2;
  std::vector<std::vector<Pair>> rounds;
  for (int round = 0; round < even - 1; ++round) {
    auto& pairs = rounds.emplace_back();
    for (int i = 0; i < even / 2; ++i) {
      const int one = i == 0 ? even - 1 : (round + i) % (even - 1);
      const int other = (round + even - 1 - i) % (even - 1);
      if (std::max(one, other) < num_units) {
        pairs.push_back({std::min(one, other), std::max(one, other)});
      }
    }
  }
  return rounds;
}

double typical_s(const std::vector<PairTime>& times) {
  SM_CHECK(!times.empty(), "there is no pair");
  std::vector<double> sorted;
  for (const auto& time : times) {
    sorted.push_back(time.time_s);
  }
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) / 2];
}

std::vector<PairTime> suspects_of(std::vector<PairTime> times, double typical_s) {
  std::erase_if(times, [&](const PairTime& time) { return time.time_s <= kBadFactor * typical_s; });
  std::ranges::sort(times, std::greater(), &PairTime::time_s);
  return times;
}

std::vector<PairTime> bad_pairs_of(std::vector<PairTime> times, double typical_s) {
  std::erase_if(times, [&](const PairTime& time) { return time.fastest_s <= kBadFactor * typical_s; });
  return suspects_of(std::move(times), typical_s);
}

std::string reason_for_no_verdict(int num_units, std::int64_t message_bytes, bool oversubscribed) {
  if (oversubscribed) {
    return "ranks share cores, and wait for each other's turns: start no more ranks on a node than it has cores";
  }
  if (message_bytes < kLeastJudgedBytes) {
    return fmt::format("of {} bytes most of the time is latency and its noise: give --max {}K or more", message_bytes,
                       kLeastJudgedBytes >> 10);
  }
  return num_units == 2 ? "there is one pair, and no other to compare it with: start a third" : "";
}

std::vector<int> bad_units(const std::vector<PairTime>& bad, int num_units) {
  std::vector<int> units;
  for (int unit = 0; unit < num_units; ++unit) {
    const auto count =
        std::ranges::count_if(bad, [&](const PairTime& time) { return time.pair.first == unit || time.pair.second == unit; });
    if (count >= 2 && count == num_units - 1) {
      units.push_back(unit);
    }
  }
  return units;
}

std::vector<std::vector<std::pair<int, int>>> make_halves(int num_units) {
  std::vector<std::vector<std::pair<int, int>>> levels;
  std::vector<std::pair<int, int>> level{{0, num_units}};
  while (!level.empty()) {
    levels.push_back(level);
    std::vector<std::pair<int, int>> next;
    for (const auto& [first, end] : level) {
      const int middle = first + (end - first) / 2;
      for (const auto& half : {std::pair(first, middle), std::pair(middle, end)}) {
        if (half.second - half.first >= 2) {
          next.push_back(half);
        }
      }
    }
    level = std::move(next);
  }
  return levels;
}

}  // namespace shardmark::app::bench
