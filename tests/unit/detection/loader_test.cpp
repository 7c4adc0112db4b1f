#include "detection/loader.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/synthetic_images.hpp"
#include "tests/support/detection_fixture.hpp"

namespace shardmark::detection {
namespace {

constexpr ResizeRule kRule{128, 160};

struct Loading {
  explicit Loading(const LoaderOptions& options)
      : loader(source, options, [](ImageSize /*padded*/) {
          return std::vector<ImageSize>{{16, 20}, {8, 10}, {4, 5}, {2, 3}, {1, 2}};
        }) {}
  data::SyntheticImages source{{.num_rows = 30, .shape = {96, 120}, .classes = 4, .seed = 1}};
  Loader loader;
};

void expect_equal(const Loaded& a, const Loaded& b) {
  EXPECT_TRUE(at::equal(a.images_N3HW, b.images_N3HW));
  EXPECT_TRUE(at::equal(a.targets.classes_NA, b.targets.classes_NA));
  EXPECT_TRUE(at::equal(a.targets.boxes_P4, b.targets.boxes_P4));
  EXPECT_EQ(a.counted, b.counted);
}

TEST(Loader, ThreadsAndAnnouncementsChangeNothing) {
  Loading plain({.resize = kRule, .flip = 0.5});
  Loading ahead({.resize = kRule, .flip = 0.5, .num_threads = 2});
  const std::vector<std::int64_t> rows{3, 9, -1, 4};
  const LoadKey key{.seed = 7, .step = 2, .first_slot = 4};
  const auto expected = plain.loader.load(rows, key);
  ahead.loader.announce(rows, key);
  expect_equal(ahead.loader.load(rows, key), expected);
  ahead.loader.announce(std::vector<std::int64_t>{1, 2}, key);  // and something else is asked for
  expect_equal(ahead.loader.load(rows, key), expected);
}

TEST(Loader, AFlipDependsOnStepAndSlotAlone) {
  Loading always({.resize = kRule, .flip = 1});
  Loading never({.resize = kRule});
  Loading half({.resize = kRule, .flip = 0.5});
  const auto mirrored = always.loader.load(std::vector<std::int64_t>{3}, {});
  const auto plain = never.loader.load(std::vector<std::int64_t>{3}, {});
  EXPECT_FALSE(at::equal(mirrored.images_N3HW, plain.images_N3HW));
  // 128 x 160 fills the padded picture. Weights of two neighbours are exchanged, which rounds once each.
  EXPECT_LE(testing::largest_difference(mirrored.images_N3HW.flip(3), plain.images_N3HW), 4 * 3 * 0x1.0p-24);
  int flipped = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    // The same row in another place of the share, by another rank: the slot in the global batch counts.
    const auto one = half.loader.load(std::vector<std::int64_t>{3, 5}, {.step = step, .first_slot = 6});
    const auto other = half.loader.load(std::vector<std::int64_t>{5}, {.step = step, .first_slot = 7});
    EXPECT_TRUE(at::equal(one.images_N3HW[1], other.images_N3HW[0]));
    flipped += at::equal(one.images_N3HW[0], plain.images_N3HW[0]) ? 0 : 1;
  }
  // 40 tosses: 20 with a deviation of 3.2; within six of them.
  EXPECT_NEAR(flipped, 20, 19);
  EXPECT_GT(flipped, 0);
}

TEST(Loader, FillersAloneBecomeOnePictureThatCountsNothing) {
  Loading loading({.resize = kRule});
  const auto loaded = loading.loader.load(std::vector<std::int64_t>{-1, -1}, {});
  EXPECT_EQ(loaded.counted, 0);
  EXPECT_EQ(loaded.images_N3HW.size(0), 1);
  EXPECT_EQ(loaded.targets.scale_N.item<float>(), 0);
}

TEST(Loader, PadsToAFixedSideOrSaysThatItIsTooSmall) {
  Loading loading({.resize = kRule, .pad_to = 192});
  EXPECT_EQ(loading.loader.load(std::vector<std::int64_t>{0}, {}).images_N3HW.sizes(), (at::IntArrayRef{1, 3, 192, 192}));
  EXPECT_THROW(Loading({.resize = kRule, .pad_to = 128}), base::ConfigError);
}

}  // namespace
}  // namespace shardmark::detection
