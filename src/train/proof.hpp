#pragma once
// What two runs must have in common (design section 4): bounds against one rank, equal bits between techniques. Pure
// functions of what cells computed.

#include <string>
#include <vector>

#include "train/cell.hpp"

namespace shardmark::train {

/// How far `single` is from itself when the same rows are added in another order, and hence how far others may be: 20 x the
/// largest such distance, but not below 2e-6 (loss, norm) and 2e-5 (gradient tensors, relative L2). Two norms differ by no
/// more than the vectors do, so the distance of the whole gradient bounds the norm as well: one scalar may be near by chance.
class Bounds {
 public:
  /// `whole`: the whole batch at once; `others`: the same rows from the last to the first, one at a time, and as many at a time
  /// as the run under proof takes: in bf16 the rounding of each part's gradient is most of the distance. All under `single`.
  Bounds(const CellResult& whole, const std::vector<CellResult>& others);

  /// Loss, norm and gradients of step 0 and the last loss of `found` against `whole`. One check each; of the gradients the
  /// tensor nearest to (or farthest beyond) its bound.
  [[nodiscard]] std::vector<Check> compare(const CellResult& found) const;

 private:
  const CellResult& whole_;
  double loss_ = 0;
  double norm_ = 0;
  double last_loss_ = 0;
  std::vector<double> gradients_;  // by tensor
};

/// Losses, norms, gradients and parameters have the same bits: one check each, `found` counts what differs.
[[nodiscard]] std::vector<Check> compare_bits(const CellResult& expected, const CellResult& found);

}  // namespace shardmark::train
