#include "data/synthetic_images.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

const SyntheticImagesOptions kOptions{.num_rows = 40, .shape = {64, 80}, .classes = 4, .seed = 3};

std::vector<std::uint8_t> pixels_of(const ImageSource& source, std::int64_t row) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(source.shape(row).num_bytes()));
  source.read(row, pixels);
  return pixels;
}

TEST(SyntheticImages, ArePureFunctionsOfSeedAndRow) {
  const SyntheticImages one(kOptions);
  const SyntheticImages same(kOptions);
  auto options = kOptions;
  options.seed = 4;
  const SyntheticImages other(options);
  EXPECT_EQ(pixels_of(one, 7), pixels_of(same, 7));
  EXPECT_NE(pixels_of(one, 7), pixels_of(one, 8));
  EXPECT_NE(pixels_of(one, 7), pixels_of(other, 7));
}

TEST(SyntheticImages, BoxesHoldTheirShapes) {
  const SyntheticImages source(kOptions);
  std::set<std::int32_t> labels;
  std::int64_t empty = 0;
  for (std::int64_t row = 0; row < source.num_rows(); ++row) {
    const auto objects = source.objects(row);
    const auto pixels = pixels_of(source, row);
    empty += objects.labels.empty() ? 1 : 0;
    for (std::size_t i = 0; i < objects.labels.size(); ++i) {
      const auto box = objects.boxes.subspan(4 * i, 4);
      EXPECT_TRUE(box[0] >= 0 && box[0] < box[2] && box[2] <= 80 && box[1] >= 0 && box[1] < box[3] && box[3] <= 64);
      labels.insert(objects.labels[i]);
    }
    if (!objects.labels.empty()) {  // the last shape lies on top: its middle, of low down of a triangle, is no grey
      const auto box = objects.boxes.last(4);
      const auto x = static_cast<std::size_t>((box[0] + box[2]) / 2);
      const auto y = static_cast<std::size_t>((box[1] + box[3]) / 2);
      const auto* pixel = &pixels[3 * (y * 80 + x)];
      EXPECT_FALSE(pixel[0] == pixel[1] && pixel[1] == pixel[2]) << row;
    }
  }
  EXPECT_EQ(labels, (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_GT(empty, 0) << "some pictures have no object";
}

TEST(SyntheticImages, RefuseWhatCannotBe) {
  auto options = kOptions;
  options.classes = 1;
  EXPECT_THROW(SyntheticImages{options}, base::ConfigError);
  options = kOptions;
  options.shape.width = 8;
  EXPECT_THROW(SyntheticImages{options}, base::ConfigError);
}

}  // namespace
}  // namespace shardmark::data
