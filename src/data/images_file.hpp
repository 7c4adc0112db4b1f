#pragma once
// HDF5 files of kind "images": /pixels uint8, all pictures one after another; /images compound (offset, height, width, id);
// /boxes float32 (M, 4); /box_labels int32 (M); /box_start int64 (images + 1); and, where known, /box_area float64 (M) and
// /box_crowd uint8 (M). Everything but pixels, which cannot be wrong, is checked when the file is opened. Pixels below 256 MiB
// stay in memory, more are read picture by picture.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/image_source.hpp"

namespace shardmark::data {

struct ImagesExpectation {
  std::int64_t classes = 0;  // labels lie in [1, classes)
  std::int64_t keep_below_bytes = std::int64_t{256} << 20;
};

class ImagesFile final : public ImageSource {
 public:
  /// Throws DataError naming path, dataset, row and value; all problems at once where several can be told.
  ImagesFile(const std::string& path, const ImagesExpectation& expectation);
  ~ImagesFile() override;

  [[nodiscard]] std::int64_t num_rows() const override;
  [[nodiscard]] ImageShape shape(std::int64_t row) const override;
  [[nodiscard]] ImageObjects objects(std::int64_t row) const override;
  [[nodiscard]] std::string describe() const override;
  void read(std::int64_t row, std::span<std::uint8_t> pixels) const override;
  [[nodiscard]] bool in_memory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardmark::data
