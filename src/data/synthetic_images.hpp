#pragma once
// Made-up pictures: labelled shapes on a soft background, each value a pure function of (seed, row, pixel). A shape's kind is
// its label's remainder by three (rectangle, disc, triangle), its colour comes from the label: classes can be learnt.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/image_source.hpp"

namespace shardmark::data {

struct SyntheticImagesOptions {
  std::int64_t num_rows = 0;
  ImageShape shape;          // at least 16 x 16
  std::int64_t classes = 0;  // labels 1 to classes - 1
  std::uint64_t seed = 0;
};

class SyntheticImages final : public ImageSource {
 public:
  /// Throws ConfigError naming each number that is wrong.
  explicit SyntheticImages(const SyntheticImagesOptions& options);

  [[nodiscard]] std::int64_t num_rows() const override { return options_.num_rows; }
  [[nodiscard]] ImageShape shape(std::int64_t row) const override;
  [[nodiscard]] ImageObjects objects(std::int64_t row) const override;
  [[nodiscard]] std::string describe() const override { return "synthetic"; }
  void read(std::int64_t row, std::span<std::uint8_t> pixels) const override;

 private:
  SyntheticImagesOptions options_;
  std::vector<std::size_t> starts_;  // of each row's objects
  std::vector<float> boxes_;
  std::vector<std::int32_t> labels_;
  std::vector<double> areas_;
  std::vector<std::uint8_t> crowds_;
};

}  // namespace shardmark::data
