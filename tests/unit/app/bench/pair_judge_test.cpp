// Which pairs meet when, and what their times say.

#include "app/bench/pair_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace shardmark::app::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Rounds, EveryTwoMeetOnceAndNobodyIsInTwoPairsAtATime) {
  for (int units = 2; units <= 9; ++units) {
    std::set<std::pair<int, int>> met;
    const auto rounds = make_rounds(units);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(units % 2 == 0 ? units - 1 : units));
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second) << units;
        EXPECT_TRUE(met.insert({pair.first, pair.second}).second) << units;
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(units * (units - 1) / 2));
  }
}

TEST(Halves, GoDownToTwo) {
  const auto levels = make_halves(5);
  ASSERT_EQ(levels.size(), 3U);
  EXPECT_THAT(levels[0], ElementsAre(Pair(0, 5)));
  EXPECT_THAT(levels[1], ElementsAre(Pair(0, 2), Pair(2, 5)));
  EXPECT_THAT(levels[2], ElementsAre(Pair(3, 5)));
}

/// Of 6 units, 1 s a pair but for those that `slow` names.
std::vector<PairTime> times_of(const std::vector<PairTime>& slow) {
  std::vector<PairTime> times;
  for (const auto& round : make_rounds(6)) {
    for (const auto& pair : round) {
      const auto found = std::ranges::find(slow, pair, &PairTime::pair);
      times.push_back({pair, found == slow.end() ? 1.0 : found->time_s});
    }
  }
  return times;
}

std::vector<bench::Pair> pairs_in(const std::vector<PairTime>& times) {
  std::vector<bench::Pair> pairs;
  for (const auto& time : times) {
    pairs.push_back(time.pair);
  }
  return pairs;
}

TEST(Judge, NamesTheSlowPairAndNoOther) {
  const auto times = times_of({{{1, 4}, 1.6}, {{0, 2}, 1.5}, {{3, 5}, 2.5}});
  EXPECT_EQ(typical_s(times), 1);
  const auto suspects = suspects_of(times, 1);
  EXPECT_THAT(pairs_in(suspects), ElementsAre(bench::Pair{3, 5}, bench::Pair{1, 4})) << "1.5 x is not above 1.5 x";
  EXPECT_THAT(bad_units(suspects, 6), IsEmpty());
  EXPECT_THAT(suspects_of(times_of({}), 1), IsEmpty());
}

TEST(Judge, NamesAUnitThatIsSlowWithAllOthers) {
  std::vector<PairTime> slow;
  for (const int other : {0, 1, 3, 4, 5}) {
    slow.push_back({{std::min(2, other), std::max(2, other)}, 3.0});
  }
  const auto suspects = suspects_of(times_of(slow), typical_s(times_of(slow)));
  EXPECT_EQ(suspects.size(), 5U);
  EXPECT_THAT(bad_units(suspects, 6), ElementsAre(2));
  EXPECT_THAT(bad_units({{{0, 1}, 3.0}}, 2), IsEmpty()) << "one pair tells nothing of its two";
}

TEST(Judge, APairWhoseFastestCallIsAsOthersIsNoise) {
  const std::vector<PairTime> slow{{{0, 1}, 3.0, 1.1}, {{0, 2}, 1.6, 1.51}, {{1, 2}, 1.4, 1.4}};
  EXPECT_THAT(pairs_in(suspects_of(slow, 1)), ElementsAre(bench::Pair{0, 1}, bench::Pair{0, 2}));
  EXPECT_THAT(pairs_in(bad_pairs_of(slow, 1)), ElementsAre(bench::Pair{0, 2}));
}

TEST(Judge, GivesNoVerdictWhereTimesCannotCarryOne) {
  EXPECT_EQ(reason_for_no_verdict(3, kLeastJudgedBytes, false), "");
  EXPECT_THAT(reason_for_no_verdict(3, kLeastJudgedBytes, true), HasSubstr("share cores"));
  EXPECT_THAT(reason_for_no_verdict(3, kLeastJudgedBytes - 1, false), HasSubstr("latency"));
  EXPECT_THAT(reason_for_no_verdict(3, 8, false), HasSubstr("--max 128K"));
  EXPECT_THAT(reason_for_no_verdict(2, kLeastJudgedBytes, false), HasSubstr("no other to compare it with"));
}

TEST(Judge, TheTypicalTimeIsThatOfTheFasterHalf) {
  // One slow unit of four: half of all six pairs.
  EXPECT_EQ(typical_s({{{0, 1}, 5}, {{0, 2}, 1}, {{0, 3}, 1}, {{1, 2}, 5}, {{1, 3}, 5}, {{2, 3}, 1}}), 1);
  EXPECT_EQ(typical_s({{{0, 1}, 7}}), 7);
}

}  // namespace
}  // namespace shardmark::app::bench
