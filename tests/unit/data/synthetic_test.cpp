#include "data/synthetic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

struct Rows {
  std::vector<float> features;
  std::vector<float> targets;
  std::vector<std::int64_t> labels;
};

Rows read(VectorSource& source, const std::vector<std::int64_t>& rows) {
  Rows result;
  result.features.resize(rows.size() * static_cast<std::size_t>(source.width()), -1.0F);
  result.targets.resize(rows.size() * static_cast<std::size_t>(source.target_width()), -1.0F);
  result.labels.resize(source.target_width() == 0 ? rows.size() : 0, -1);
  source.read(rows, {.features = result.features, .targets = result.targets, .labels = result.labels});
  return result;
}

std::vector<std::int64_t> first_rows(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(Synthetic, ARowIsTheSameWhereverAndHoweverOftenItIsRead) {
  const SyntheticOptions options{.num_rows = 100, .width = 10, .target_width = 1, .seed = 5};
  SyntheticVectors source(options);
  SyntheticVectors other(options);
  const Rows together = read(source, {3, 99, 3});
  const Rows alone = read(other, {99});
  EXPECT_TRUE(std::equal(alone.features.begin(), alone.features.end(), together.features.begin() + 10));
  EXPECT_TRUE(std::equal(together.features.begin(), together.features.begin() + 10, together.features.begin() + 20));
  EXPECT_EQ(alone.targets[0], together.targets[1]);
  EXPECT_NE(together.features[0], together.features[10]);
}

TEST(Synthetic, KeptAndFreshRowsAreEqual) {
  // A hundred million rows are never kept.
  SyntheticVectors kept({.num_rows = 50, .width = 7, .target_width = 2, .seed = 1});
  SyntheticVectors fresh({.num_rows = 100'000'000, .width = 7, .target_width = 2, .seed = 1});
  const auto rows = first_rows(50);
  EXPECT_EQ(read(kept, rows).features, read(fresh, rows).features);
  EXPECT_EQ(read(kept, rows).targets, read(fresh, rows).targets);
}

TEST(Synthetic, FeaturesAndTargetsAreStandardNormalAndApart) {
  SyntheticVectors source({.num_rows = 5000, .width = 10, .target_width = 10, .seed = 0});
  const Rows rows = read(source, first_rows(5000));
  for (const auto& values : {rows.features, rows.targets}) {
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double count = static_cast<double>(values.size());
    // Five standard errors: 1 / sqrt(n) of the mean, sqrt(2 / n) of the variance.
    EXPECT_NEAR(sum / count, 0.0, 5.0 / std::sqrt(count));
    EXPECT_NEAR(squares / count, 1.0, 5.0 * std::sqrt(2.0 / count));
  }
  EXPECT_NE(rows.features, rows.targets);
}

TEST(Synthetic, LabelsUseEveryClassAndFollowTheFeatures) {
  SyntheticVectors source({.num_rows = 2000, .width = 16, .classes = 10, .seed = 2});
  const auto all = first_rows(2000);
  const Rows rows = read(source, all);
  std::vector<int> count(10, 0);
  for (const std::int64_t label : rows.labels) {
    ASSERT_GE(label, 0);
    ASSERT_LT(label, 10);
    ++count[static_cast<std::size_t>(label)];
  }
  EXPECT_THAT(count, Each(::testing::Gt(20)));

  // Learnable: the mean feature of a class, taken from the first half, tells the labels of the second well above chance.
  std::vector<double> means(160, 0.0);
  for (std::size_t row = 0; row < 1000; ++row) {
    for (std::size_t i = 0; i < 16; ++i) {
      means[static_cast<std::size_t>(rows.labels[row]) * 16 + i] += static_cast<double>(rows.features[row * 16 + i]);
    }
  }
  int num_right = 0;
  for (std::size_t row = 1000; row < 2000; ++row) {
    std::size_t best = 0;
    double best_score = -1e300;
    for (std::size_t c = 0; c < 10; ++c) {
      double score = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        score += means[c * 16 + i] / std::max(count[c], 1) * static_cast<double>(rows.features[row * 16 + i]);
      }
      if (score > best_score) {
        best_score = score;
        best = c;
      }
    }
    num_right += static_cast<std::int64_t>(best) == rows.labels[row] ? 1 : 0;
  }
  EXPECT_GT(num_right, 300);  // chance is 100
}

TEST(Synthetic, FillersAreZero) {
  SyntheticVectors source({.num_rows = 5, .width = 2, .classes = 3, .seed = 0});
  const Rows rows = read(source, {-1, 4});
  EXPECT_EQ(rows.features[0], 0.0F);
  EXPECT_EQ(rows.features[1], 0.0F);
  EXPECT_EQ(rows.labels[0], 0);
  EXPECT_NE(rows.features[2], 0.0F);

  SyntheticVectors regression({.num_rows = 5, .width = 2, .target_width = 2, .seed = 0});
  EXPECT_THAT(read(regression, {-1}).targets, ElementsAre(0.0F, 0.0F));
}

TEST(Synthetic, TheSeedChangesEverything) {
  SyntheticVectors one({.num_rows = 20, .width = 4, .classes = 9, .seed = 1});
  SyntheticVectors two({.num_rows = 20, .width = 4, .classes = 9, .seed = 2});
  EXPECT_NE(read(one, first_rows(20)).features, read(two, first_rows(20)).features);
  EXPECT_NE(read(one, first_rows(20)).labels, read(two, first_rows(20)).labels);
}

TEST(Synthetic, ImpossibleOptionsAreReportedTogether) {
  try {
    const SyntheticVectors source({.num_rows = 0, .width = -1, .target_width = 1, .classes = 1});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 3U);
  }
  EXPECT_THROW(SyntheticVectors({.num_rows = 1, .width = 1}), base::ConfigError);
  EXPECT_THROW(SyntheticVectors({.num_rows = std::int64_t{1} << 62, .width = 4, .classes = 2}), base::ConfigError);
}

}  // namespace
}  // namespace shardmark::data
