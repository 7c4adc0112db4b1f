#include "data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> batch_of(const Sampler& sampler, std::int64_t step, std::size_t global_batch) {
  std::vector<std::int64_t> rows(global_batch, -7);
  sampler.rows_of(step, 0, rows);
  return rows;
}

TEST(Sampler, UnshuffledRowsComeInOrderAndFillersEndTheEpoch) {
  const Sampler sampler({.num_rows = 7, .global_batch = 3, .shuffle = false});
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_THAT(batch_of(sampler, 0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(batch_of(sampler, 1, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(batch_of(sampler, 2, 3), ElementsAre(6, -1, -1));
  EXPECT_THAT(batch_of(sampler, 3, 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(sampler.real_rows(1), 3);
  EXPECT_EQ(sampler.real_rows(2), 1);
  EXPECT_EQ(sampler.real_rows(5), 1);
  EXPECT_EQ(sampler.epoch_of(2), 0);
  EXPECT_EQ(sampler.epoch_of(3), 1);
}

TEST(Sampler, ABatchLargerThanTheDataIsFilled) {
  const Sampler sampler({.num_rows = 2, .global_batch = 5, .shuffle = false});
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_THAT(batch_of(sampler, 4, 5), ElementsAre(0, 1, -1, -1, -1));
}

TEST(Sampler, EveryEpochHoldsEveryRowOnceInAnOrderOfItsOwn) {
  const Sampler sampler({.num_rows = 101, .global_batch = 8, .shuffle = true, .seed = 3});
  std::vector<std::vector<std::int64_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> rows;
    for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      const auto batch = batch_of(sampler, epoch * sampler.steps_per_epoch() + step, 8);
      rows.insert(rows.end(), batch.begin(), batch.end());
    }
    const auto num_fillers = std::count(rows.begin(), rows.end(), -1);
    EXPECT_EQ(num_fillers, 13 * 8 - 101);
    rows.resize(101);  // fillers come last
    epochs.push_back(rows);
    std::sort(rows.begin(), rows.end());
    std::vector<std::int64_t> all(101);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(rows, all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Sampler, SharesOfAnyNumberOfRanksMakeTheSameBatch) {
  const Sampler sampler({.num_rows = 50, .global_batch = 12, .shuffle = true, .seed = 9});
  const auto whole = batch_of(sampler, 4, 12);
  for (const std::int64_t num_ranks : {2, 3, 4, 6, 12}) {
    std::vector<std::int64_t> joined;
    const std::int64_t share = 12 / num_ranks;
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      std::vector<std::int64_t> part(static_cast<std::size_t>(share));
      sampler.rows_of(4, rank * share, part);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << num_ranks << " ranks";
  }
}

TEST(Sampler, TheSeedDecidesTheOrderAndNothingElse) {
  const Sampler one({.num_rows = 64, .global_batch = 64, .shuffle = true, .seed = 1});
  const Sampler again({.num_rows = 64, .global_batch = 64, .shuffle = true, .seed = 1});
  const Sampler two({.num_rows = 64, .global_batch = 64, .shuffle = true, .seed = 2});
  EXPECT_EQ(batch_of(one, 5, 64), batch_of(again, 5, 64));
  EXPECT_NE(batch_of(one, 5, 64), batch_of(two, 5, 64));
}

TEST(Sampler, SlotsOutsideTheBatchAreBrokenInvariants) {
  const Sampler sampler({.num_rows = 7, .global_batch = 3, .shuffle = false});
  std::vector<std::int64_t> two(2);
  EXPECT_THROW(sampler.rows_of(0, 2, two), base::InvariantError);
  EXPECT_THROW(sampler.rows_of(0, -1, two), base::InvariantError);
  EXPECT_THROW(sampler.rows_of(-1, 0, two), base::InvariantError);
}

TEST(Sampler, ImpossibleSizesAreReportedTogether) {
  try {
    const Sampler sampler({.num_rows = 0, .global_batch = -1, .shuffle = true});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 2U);
  }
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Sampler({.num_rows = kLargest, .global_batch = 2}).steps_per_epoch(), kLargest / 2 + 1);
}

}  // namespace
}  // namespace shardmark::data
