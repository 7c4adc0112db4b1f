#include "train/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "train/gather_items.hpp"

namespace shardmark::train {
namespace {

/// Every element is another rank's zero but for one: the sum is exact in any order.
void share(comm::Communicator& communicator, std::vector<double>& values) {
  communicator
      .all_reduce(comm::host_buffer(values.data(), static_cast<std::int64_t>(values.size()), base::DType::fp64),
                  comm::Purpose::control, 0)
      .wait();
}

}  // namespace

double quality_of(Workload& workload, parallel::Strategy& strategy, comm::Communicator& communicator) {
  const std::int64_t num_rows = workload.num_eval_rows();
  if (num_rows == 0) {
    return std::nan("");
  }
  const torch::NoGradGuard no_grad;
  const std::int64_t piece_rows = workload.eval_rows_at_once();
  const std::int64_t pieces = (num_rows + piece_rows - 1) / piece_rows;
  const std::int64_t size = communicator.size();
  const std::int64_t first = pieces * communicator.rank() / size;
  const std::int64_t last = pieces * (communicator.rank() + 1) / size;
  std::vector<double> sums(static_cast<std::size_t>(2 * pieces));
  Evaluation all;
  strategy.begin_evaluation();
  // Every rank runs equally many passes, for a pass may gather parameters: one without pieces left runs row 0 and forgets it.
  for (std::int64_t pass = 0; pass < (pieces + size - 1) / size; ++pass) {
    const std::int64_t piece = first + pass;
    const bool counts = piece < last;
    const std::int64_t first_row = counts ? piece * piece_rows : 0;
    std::vector<std::int64_t> rows(counts ? static_cast<std::size_t>(std::min(piece_rows, num_rows - first_row)) : 1);
    std::iota(rows.begin(), rows.end(), first_row);
    const Evaluation part = workload.evaluate(rows);
    if (counts) {
      const auto at = static_cast<std::size_t>(2 * piece);
      sums[at] = part.sum;
      sums[at + 1] = part.weight;
      all.items.insert(all.items.end(), part.items.begin(), part.items.end());
    }
  }
  strategy.end_evaluation();
  share(communicator, sums);
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    all.sum += sums[i];
    all.weight += sums[i + 1];
  }
  all.items = gather_items(communicator, all.items);  // ranks hold pieces in their order
  return workload.quality(all);
}

}  // namespace shardmark::train
