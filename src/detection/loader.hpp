#pragma once
// From rows of a source of pictures to what a detector trains on, ahead of use where there are threads for it. Results do not
// depend on the threads, nor on who asks for which rows.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/worker_pool.hpp"
#include "data/image_source.hpp"
#include "detection/losses.hpp"
#include "detection/transform.hpp"

namespace shardmark::detection {

/// A picture as the model sees it, but for padding.
struct Prepared {
  torch::Tensor image_3HW;
  Truth truth;
};

/// Pictures of one pass.
struct Loaded {
  torch::Tensor images_N3HW;
  Targets targets;
  std::int64_t counted = 0;  // pictures; the others are fillers
};

struct LoaderOptions {
  ResizeRule resize;
  std::int64_t pad_to = 0;  // side of a square; 0 = what the pictures need
  double flip = 0;          // probability
  std::size_t num_threads = 0;
};

/// What decides a picture's flip: the same whoever loads it.
struct LoadKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_slot = 0;  // of the rows' first in the step's global batch
  friend bool operator==(const LoadKey&, const LoadKey&) = default;
};

/// The size of each level of the pyramid for a padded picture.
using LevelsOf = std::function<std::vector<ImageSize>(ImageSize padded)>;

class Loader {
 public:
  /// The source is lent. Throws ConfigError if a picture is larger than `pad_to`.
  Loader(const data::ImageSource& source, const LoaderOptions& options, LevelsOf levels);

  /// Throws DataError for the first box that resizing or mirroring rounds to one without width or height: its code is infinite.
  void check_boxes() const;

  /// Begins with rows that `load` will be asked for.
  void announce(std::span<const std::int64_t> rows, const LoadKey& key);
  /// Fillers (-1) are left out; fillers alone become one blank picture that counts nowhere.
  [[nodiscard]] Loaded load(std::span<const std::int64_t> rows, const LoadKey& key);

  /// One picture without a flip, not padded.
  [[nodiscard]] Prepared prepare(std::int64_t row) const;
  [[nodiscard]] ImageSize resized(std::int64_t row) const;
  [[nodiscard]] ImageSize padded(const std::vector<ImageSize>& sizes) const;
  [[nodiscard]] const torch::Tensor& anchors(ImageSize size);

 private:
  [[nodiscard]] Prepared prepare(std::int64_t row, bool mirrored) const;
  [[nodiscard]] std::vector<std::future<Prepared>> begin(std::span<const std::int64_t> rows, const LoadKey& key);

  const data::ImageSource& source_;
  LoaderOptions options_;
  LevelsOf levels_;
  std::map<std::pair<std::int64_t, std::int64_t>, torch::Tensor> anchors_;
  std::vector<std::int64_t> announced_rows_;
  LoadKey announced_key_;
  std::vector<std::future<Prepared>> announced_;
  base::WorkerPool pool_;  // last: its threads use the others
};

}  // namespace shardmark::detection
