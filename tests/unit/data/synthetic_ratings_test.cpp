#include "data/synthetic_ratings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ranges>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

struct Read {
  std::vector<std::int64_t> users, items;
  std::vector<float> labels;
  friend bool operator==(const Read&, const Read&) = default;
};
Read read(SyntheticRatings& source, const std::vector<std::int64_t>& rows) {
  Read all{std::vector<std::int64_t>(rows.size(), 9), std::vector<std::int64_t>(rows.size(), 9),
           std::vector<float>(rows.size(), 9)};
  source.read(rows, {all.users, all.items, all.labels});
  return all;
}
std::vector<std::int64_t> all_rows(const RatingSource& source) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(source.num_rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(SyntheticRatings, ARowIsAFunctionOfSeedAndIndex) {
  SyntheticRatings source({.num_rows = 100, .num_users = 50, .num_items = 70, .seed = 4});
  SyntheticRatings other({.num_rows = 100, .num_users = 50, .num_items = 70, .seed = 5});
  auto rows = all_rows(source);
  const auto forward = read(source, rows);
  std::ranges::reverse(rows);
  auto backward = read(source, rows);
  std::ranges::reverse(backward.users);
  std::ranges::reverse(backward.items);
  std::ranges::reverse(backward.labels);
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward, read(other, all_rows(other)));
  EXPECT_EQ(read(source, {-1}), (Read{{0}, {0}, {0}}));
}

TEST(SyntheticRatings, IdsFollowZipfsLaw) {
  constexpr std::int64_t kRows = 40'000;
  SyntheticRatings source({.num_rows = kRows, .num_users = 1000, .num_items = 30, .seed = 1});
  const auto all = read(source, all_rows(source));
  for (const auto& [ids, size] : {std::pair(&all.users, 1000), std::pair(&all.items, 30)}) {
    std::map<std::int64_t, double> counts;
    for (const auto id : *ids) {
      ASSERT_TRUE(id >= 0 && id < size);
      counts[id] += 1;
    }
    std::vector<double> falling;
    for (const auto& [id, count] : counts) {
      falling.push_back(count);
    }
    std::ranges::sort(falling, std::greater());
    double sum = 0;
    for (int place = 1; place <= size; ++place) {
      sum += std::pow(place, -1.05);
    }
    for (const std::size_t place : {0U, 1U, 4U}) {
      const double share = std::pow(static_cast<double>(place + 1), -1.05) / sum;
      // Five deviations of a count of kRows draws.
      EXPECT_NEAR(falling.at(place), kRows * share, 5 * std::sqrt(kRows * share * (1 - share))) << size << " " << place;
    }
  }
}

TEST(SyntheticRatings, LabelsAreAsLikelyAsThePlantedFactorsSay) {
  constexpr std::int64_t kRows = 40'000;
  SyntheticRatings source({.num_rows = kRows, .num_users = 300, .num_items = 300, .seed = 2});
  const auto all = read(source, all_rows(source));
  double expected = 0;
  double variance = 0;
  double positives = 0;
  double sure = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    const double p = source.probability(all.users[i], all.items[i]);
    ASSERT_TRUE(p > 0 && p < 1 && (all.labels[i] == 0 || all.labels[i] == 1));
    expected += p;
    variance += p * (1 - p);
    positives += static_cast<double>(all.labels[i]);
    sure += (p > 0.5) == (all.labels[i] == 1) ? 1 : 0;
  }
  EXPECT_NEAR(positives, expected, 5 * std::sqrt(variance));
  EXPECT_GT(sure / kRows, 0.75) << "who knows the factors knows most labels";
}

TEST(SyntheticRatings, ImpossibleSizesAreNamed) {
  try {
    SyntheticRatings source({.num_rows = 0, .num_users = 1, .num_items = -2, .seed = 0});
    FAIL() << "was accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("0 rows"), ::testing::HasSubstr("-2 movies")));
  }
}

}  // namespace
}  // namespace shardmark::data
