#include "detection/decode.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace shardmark::detection {
namespace {

torch::Tensor boxes(std::initializer_list<float> numbers) {
  return at::tensor(std::vector<float>(numbers)).view({-1, 4});
}

using Kept = std::vector<std::int64_t>;

TEST(Decode, TheHigherScoreOfAClassSuppresses) {
  // Overlaps of neighbours: 8 / 12 along the row.
  const torch::Tensor found = boxes({0, 0, 10, 1, 2, 0, 12, 1, 4, 0, 14, 1});
  const torch::Tensor scores = at::tensor(std::vector<float>{0.5F, 0.9F, 0.6F});
  EXPECT_EQ(suppress_overlaps(found, scores, at::zeros({3}, at::kLong), 0.5), (Kept{1}));
  EXPECT_EQ(suppress_overlaps(found, scores, at::arange(3), 0.5), (Kept{1, 2, 0}));
  // 8 / 12 is not above itself; both ends overlap by 6 / 14 only.
  EXPECT_EQ(suppress_overlaps(found, scores, at::zeros({3}, at::kLong), 8.0 / 12.0 + 1e-6), (Kept{1, 2, 0}));
}

TEST(Decode, EqualScoresKeepTheirOrderAndBoxesWithoutAreaStay) {
  const torch::Tensor found = boxes({3, 3, 3, 3, 3, 3, 3, 3});
  EXPECT_EQ(suppress_overlaps(found, at::ones({2}), at::zeros({2}, at::kLong), 0.5), (Kept{0, 1}));
}

TEST(Decode, OfALevelOnlyTheBestCandidates) {
  // Two levels of two anchors, one class; scores 0.9, 0.8 and 0.6, 0.04.
  const torch::Tensor anchors = boxes({0, 0, 2, 2, 10, 0, 12, 2, 20, 0, 22, 2, 30, 0, 40, 2});
  const torch::Tensor logits = at::logit(at::tensor(std::vector<float>{0.9F, 0.8F, 0.6F, 0.04F})).view({4, 1});
  DecodeRule rule;
  EXPECT_EQ(decode(logits, at::zeros({4, 4}), anchors, {2, 2}, {5, 100}, rule).scores_B.size(0), 3);
  rule.candidates_per_level = 1;
  const auto best = decode(logits, at::zeros({4, 4}), anchors, {2, 2}, {5, 100}, rule);
  EXPECT_TRUE(at::equal(best.boxes_B4, boxes({0, 0, 2, 2, 20, 0, 22, 2}))) << best.boxes_B4;
  rule.keep = 1;
  EXPECT_EQ(decode(logits, at::zeros({4, 4}), anchors, {2, 2}, {5, 100}, rule).scores_B.size(0), 1);
}

TEST(Decode, NothingAboveTheLimitIsNoDetection) {
  const auto none = decode(at::full({2, 3}, -9.0F), at::zeros({2, 4}), boxes({0, 0, 1, 1, 0, 0, 1, 1}), {2}, {5, 5});
  EXPECT_EQ(none.boxes_B4.size(0), 0);
}

}  // namespace
}  // namespace shardmark::detection
