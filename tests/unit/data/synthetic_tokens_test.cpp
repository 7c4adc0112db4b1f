#include "data/synthetic_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

using ::testing::Each;

struct Rows {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

Rows read(TokenSource& source, const std::vector<std::int64_t>& rows) {
  const std::size_t positions = rows.size() * static_cast<std::size_t>(source.length());
  Rows result{std::vector<std::int32_t>(positions, -1), std::vector<std::int32_t>(positions, -1)};
  source.read(rows, {.input_ids = result.ids, .labels = result.labels, .segment_ids = {}});
  return result;
}

TEST(SyntheticTokens, ARowIsTheSameWhereverItIsRead) {
  SyntheticTokens source({.num_rows = 100, .length = 16, .vocabulary = 1000, .seed = 5});
  SyntheticTokens longer({.num_rows = 100'000'000, .length = 16, .vocabulary = 1000, .seed = 5});
  SyntheticTokens other({.num_rows = 100, .length = 16, .vocabulary = 1000, .seed = 6});
  const Rows together = read(source, {3, 99, -1, 3});
  EXPECT_TRUE(std::equal(together.ids.begin() + 16, together.ids.begin() + 32, read(longer, {99}).ids.begin()));
  EXPECT_TRUE(std::equal(together.ids.begin(), together.ids.begin() + 16, together.ids.begin() + 48));
  EXPECT_NE(read(source, {3}).ids, read(source, {4}).ids);
  EXPECT_NE(read(source, {3}).ids, read(other, {3}).ids);
}

TEST(SyntheticTokens, LabelsAreTheTokensButTheFirstAndFillersHaveNone) {
  SyntheticTokens source({.num_rows = 9, .length = 4, .vocabulary = 50, .seed = 0});
  const Rows rows = read(source, {7, -1});
  EXPECT_EQ(rows.labels[0], kIgnoredLabel);
  EXPECT_TRUE(std::equal(rows.ids.begin() + 1, rows.ids.begin() + 4, rows.labels.begin() + 1));
  EXPECT_THAT(std::vector(rows.ids.begin() + 4, rows.ids.end()), Each(0));
  EXPECT_THAT(std::vector(rows.labels.begin() + 4, rows.labels.end()), Each(kIgnoredLabel));
  EXPECT_EQ(source.counts(7).targets, 3);
  EXPECT_EQ(source.counts(7).tokens, 4);
  EXPECT_EQ(source.counts(7).visible_keys, 10);
  EXPECT_EQ(source.counts(-1).targets, 0);
  EXPECT_EQ(source.total().targets, 27);
  EXPECT_EQ(source.total().visible_keys, 90);
}

TEST(SyntheticTokens, FrequenciesFollowTheStatedLaw) {
  constexpr std::int64_t kVocabulary = 16;
  SyntheticTokens source({.num_rows = 1000, .length = 64, .vocabulary = kVocabulary, .seed = 1});
  std::vector<std::int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  const Rows rows = read(source, all);
  std::vector<double> count(kVocabulary, 0.0);
  for (const std::int32_t token : rows.ids) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, kVocabulary);
    ++count[static_cast<std::size_t>(token)];
  }
  const auto draws = static_cast<double>(rows.ids.size());
  for (std::size_t token = 0; token < count.size(); ++token) {
    const double share =
        std::sqrt(static_cast<double>(token + 1) / kVocabulary) - std::sqrt(static_cast<double>(token) / kVocabulary);
    // Five standard errors of a share of independent draws.
    EXPECT_NEAR(count[token] / draws, share, 5 * std::sqrt(share * (1 - share) / draws)) << token;
  }
}

TEST(SyntheticTokens, ImpossibleOptionsAreReportedTogether) {
  try {
    const SyntheticTokens source({.num_rows = 0, .length = 1, .vocabulary = 0});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 3U);
  }
  EXPECT_THROW(SyntheticTokens({.num_rows = std::int64_t{1} << 60, .length = 4, .vocabulary = 2}), base::ConfigError);
}

}  // namespace
}  // namespace shardmark::data
