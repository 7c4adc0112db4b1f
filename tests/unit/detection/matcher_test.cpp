#include "detection/matcher.hpp"

#include <gtest/gtest.h>

#include "detection/boxes.hpp"
#include "tests/support/detection_fixture.hpp"

namespace shardmark::detection {
namespace {

torch::Tensor boxes(std::initializer_list<float> numbers) {
  return at::tensor(std::vector<float>(numbers)).view({-1, 4});
}

std::vector<std::int64_t> match(const torch::Tensor& truths, const torch::Tensor& anchors) {
  const torch::Tensor matched = match_anchors(truths, anchors).contiguous();
  return {matched.const_data_ptr<std::int64_t>(), matched.const_data_ptr<std::int64_t>() + matched.numel()};
}

using Matches = std::vector<std::int64_t>;

TEST(Matcher, ThreeKindsOfAnchors) {
  // Overlaps of a box 10 x 10 with anchors of its height: 10 / 10, 4.5 / 10 and 3 / 10.
  EXPECT_EQ(match(boxes({0, 0, 10, 10}), boxes({0, 0, 10, 10, 0, 0, 4.5F, 10, 0, 0, 3, 10})),
            (Matches{0, kBetween, kBackground}));
}

TEST(Matcher, AnOverlapAtALimitBelongsToTheUpperKind) {
  // 5 / 10 and 4 / 10, quotients of whole numbers, hence the limits' own float32 values; the whole box takes the best place.
  EXPECT_EQ(match(boxes({0, 0, 10, 1}), boxes({0, 0, 10, 1, 0, 0, 5, 1, 0, 0, 4, 1})), (Matches{0, 0, kBetween}));
}

TEST(Matcher, ABoxKeepsItsBestAnchorsHoweverLow) {
  // 3 / 10 twice is the most that this box gets: both ties are its own.
  EXPECT_EQ(match(boxes({0, 0, 10, 10}), boxes({0, 0, 3, 10, 7, 0, 10, 10, 0, 0, 2, 10})), (Matches{0, 0, kBackground}));
}

TEST(Matcher, AnAnchorGivenBackTakesItsOwnBestBox) {
  // The second box overlaps the one anchor by less than the first does: it wins the anchor back, for the first.
  EXPECT_EQ(match(boxes({0, 0, 10, 10, 0, 0, 1, 10}), boxes({0, 0, 4.5F, 10})), (Matches{0}));
}

TEST(Matcher, ABoxThatOverlapsNothingTakesWhatItMisses) {
  EXPECT_EQ(match(boxes({50, 50, 60, 60}), boxes({0, 0, 10, 10, 20, 20, 30, 30})), (Matches{0, 0}));
}

TEST(Matcher, WithoutBoxesAllIsBackground) {
  EXPECT_EQ(match(at::zeros({0, 4}), boxes({0, 0, 1, 1, 2, 2, 3, 3})), (Matches{kBackground, kBackground}));
}

class MatchesOfTheFixture : public ::testing::TestWithParam<int> {};

TEST_P(MatchesOfTheFixture, AreEqual) {
  for (const char* name : {"micro-retinanet", "micro-retinanet-v1"}) {
    const testing::DetectionFixture fixture(name);
    const std::string image = std::to_string(GetParam());
    const torch::Tensor found = match_anchors(fixture.read("mixed.resized_boxes." + image), fixture.read("mixed.anchors"));
    EXPECT_TRUE(at::equal(found, fixture.read("mixed.matched." + image).to(at::kLong))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Images, MatchesOfTheFixture, ::testing::Range(0, 3));

}  // namespace
}  // namespace shardmark::detection
