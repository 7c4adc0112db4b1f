#include "model/auroc.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"

namespace shardmark::model {
namespace {

/// By definition: over all pairs of a positive and a negative row.
double by_pairs(const std::vector<double>& scores, const std::vector<float>& labels) {
  double wins = 0;
  double pairs = 0;
  for (std::size_t p = 0; p < scores.size(); ++p) {
    for (std::size_t n = 0; n < scores.size(); ++n) {
      if (labels[p] >= 0.5F && labels[n] < 0.5F) {
        pairs += 1;
        wins += scores[p] > scores[n] ? 1 : scores[p] == scores[n] ? 0.5 : 0;
      }
    }
  }
  return wins / pairs;
}

TEST(Auroc, CountsPairsInOrderAndTiesHalf) {
  EXPECT_EQ(auroc(std::vector<double>{1, 2, 3, 4}, std::vector<float>{0, 0, 1, 1}), 1);
  EXPECT_EQ(auroc(std::vector<double>{4, 3, 2, 1}, std::vector<float>{0, 0, 1, 1}), 0);
  EXPECT_EQ(auroc(std::vector<double>{5, 5, 5, 5, 5}, std::vector<float>{0, 1, 0, 1, 1}), 0.5);
  // Pairs (2, 1), (2, 2), (3, 1), (3, 2): three in order and one tie.
  EXPECT_EQ(auroc(std::vector<double>{3, 1, 2, 2}, std::vector<float>{1, 0, 1, 0}), 3.5 / 4);
}

TEST(Auroc, IsTheDefinitionOnRandomScoresInAnyOrder) {
  const base::RandomStream random(3, "auroc");
  std::vector<double> scores;
  std::vector<float> labels;
  for (std::uint64_t i = 0; i < 500; ++i) {
    scores.push_back(std::floor(60 * static_cast<double>(random.uniform(2 * i))));  // many ties
    labels.push_back(random.uniform(2 * i + 1) < 0.3F ? 1.0F : 0.0F);
  }
  const double expected = by_pairs(scores, labels);  // whole numbers and halves: exact
  EXPECT_EQ(auroc(scores, labels), expected);
  EXPECT_EQ(auroc(std::vector(scores.rbegin(), scores.rend()), std::vector(labels.rbegin(), labels.rend())), expected);
}

TEST(Auroc, IsNoNumberWithoutBothKindsOrWithAScoreThatIsNone) {
  EXPECT_TRUE(std::isnan(auroc(std::vector<double>{1, 2}, std::vector<float>{1, 1})));
  EXPECT_TRUE(std::isnan(auroc({}, {})));
  EXPECT_TRUE(
      std::isnan(auroc(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN(), 0}, std::vector<float>{1, 1, 0})));
}

}  // namespace
}  // namespace shardmark::model
