#include "detection/loader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

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
  for (std::int64_t step = 3; step < 9; ++step) {  // the same rows of other steps, whose flips are others
    ahead.loader.announce(rows, {.seed = 7, .step = step, .first_slot = 4});
    expect_equal(ahead.loader.load(rows, key), expected);
  }
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

/// One black picture with two boxes.
class OnePicture final : public data::ImageSource {
 public:
  OnePicture(data::ImageShape shape, std::vector<float> boxes) : shape_(shape), boxes_(std::move(boxes)) {}
  [[nodiscard]] std::int64_t num_rows() const override { return 1; }
  [[nodiscard]] data::ImageShape shape(std::int64_t /*row*/) const override { return shape_; }
  [[nodiscard]] data::ImageObjects objects(std::int64_t /*row*/) const override {
    return {.boxes = boxes_, .labels = labels_, .areas = areas_, .crowds = crowds_};
  }
  [[nodiscard]] std::string describe() const override { return "one.h5"; }
  void read(std::int64_t /*row*/, std::span<std::uint8_t> pixels) const override { std::ranges::fill(pixels, std::uint8_t{0}); }

 private:
  data::ImageShape shape_;
  std::vector<float> boxes_;
  std::vector<std::int32_t> labels_{1, 1};
  std::vector<double> areas_{1, 1};
  std::vector<std::uint8_t> crowds_{0, 0};
};

TEST(Loader, NamesABoxThatLosesItsSidesWhenTrained) {
  const float next = std::nextafter(100.0F, 101.0F);
  struct Case {
    data::ImageShape shape;
    std::vector<float> thin;
    bool lost;
  };
  // Neighbours in float32, resized by 4 / 3; what a mirror takes to a border's other end; and what is thin, but stays a box.
  for (const auto& [shape, thin, lost] :
       {Case{{96, 120}, {100, 10, next, 50}, true}, Case{{120, 96}, {10, 100, 50, next}, true},
        Case{{96, 120}, {0, 10, 1e-8F, 50}, true}, Case{{96, 120}, {100, 10, 100.01F, 50}, false}}) {
    std::vector<float> boxes{10, 10, 60, 50};
    boxes.insert(boxes.end(), thin.begin(), thin.end());
    const OnePicture source(shape, boxes);
    const Loader loader(source, {.resize = kRule}, [](ImageSize /*padded*/) { return std::vector<ImageSize>{}; });
    std::string message;
    try {
      loader.check_boxes();
    } catch (const base::DataError& error) {
      message = error.what();
    }
    EXPECT_EQ(message.find("data file one.h5: dataset /boxes, row 1 (image 0) holds") == 0, lost) << message;
    // The check says what loading does.
    const auto whole = [&](const torch::Tensor& boxes_B4) {
      const torch::Tensor sides = boxes_B4.slice(1, 2) - boxes_B4.slice(1, 0, 2);
      return sides.min().item<float>() > 0;
    };
    const torch::Tensor stored = at::tensor(boxes).view({-1, 4});
    const ImageSize from{shape.height, shape.width};
    const ImageSize to = loader.resized(0);
    EXPECT_EQ(whole(resize_boxes(stored, from, to)) && whole(resize_boxes(mirror_boxes(stored, from.width), from, to)), !lost);
  }
}

TEST(Loader, PadsToAFixedSideOrSaysThatItIsTooSmall) {
  Loading loading({.resize = kRule, .pad_to = 192});
  EXPECT_EQ(loading.loader.load(std::vector<std::int64_t>{0}, {}).images_N3HW.sizes(), (at::IntArrayRef{1, 3, 192, 192}));
  EXPECT_THROW(Loading({.resize = kRule, .pad_to = 128}), base::ConfigError);
}

}  // namespace
}  // namespace shardmark::detection
