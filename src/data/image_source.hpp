#pragma once
// Pictures with boxes around what is in them, from a file or made up. Says nothing of steps, ranks or batches: see
// data/sampler.hpp.

#include <cstdint>
#include <span>
#include <string>

namespace shardmark::data {

struct ImageShape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  [[nodiscard]] std::int64_t num_bytes() const { return 3 * height * width; }
};

/// Of one picture; valid as long as its source. All of equal length, boxes four times as long.
struct ImageObjects {
  std::span<const float> boxes;          // x1, y1, x2, y2 in pixels, within the picture, wider and higher than nothing
  std::span<const std::int32_t> labels;  // from 1 on
  std::span<const double> areas;         // of the objects themselves; for scores by size
  std::span<const std::uint8_t> crowds;  // 1: a region with many objects; for scores only
};

class ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  [[nodiscard]] virtual ImageShape shape(std::int64_t row) const = 0;
  [[nodiscard]] virtual ImageObjects objects(std::int64_t row) const = 0;
  /// Where rows come from, for output and record: "synthetic" or a path.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Fills height x width x 3 values, red, green, blue of a pixel together, row after row of pixels. May be called from several
  /// threads at once. Throws IoError if reading fails.
  virtual void read(std::int64_t row, std::span<std::uint8_t> pixels) const = 0;
};

}  // namespace shardmark::data
