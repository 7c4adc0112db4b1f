#include "train/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace shardmark::train {
namespace {

/// Rows of one pass, whatever the number of ranks: a product of another shape may round otherwise.
constexpr std::int64_t kPieceRows = 128;

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
  const std::int64_t pieces = (num_rows + kPieceRows - 1) / kPieceRows;
  const std::int64_t size = communicator.size();
  const std::int64_t first = pieces * communicator.rank() / size;
  const std::int64_t last = pieces * (communicator.rank() + 1) / size;
  std::vector<double> sums(static_cast<std::size_t>(2 * pieces));
  std::vector<double> scores;
  strategy.begin_evaluation();
  // Every rank runs equally many passes, for a pass may gather parameters: one without pieces left runs row 0 and forgets it.
  for (std::int64_t pass = 0; pass < (pieces + size - 1) / size; ++pass) {
    const std::int64_t piece = first + pass;
    const bool counts = piece < last;
    const std::int64_t first_row = counts ? piece * kPieceRows : 0;
    std::vector<std::int64_t> rows(counts ? static_cast<std::size_t>(std::min(kPieceRows, num_rows - first_row)) : 1);
    std::iota(rows.begin(), rows.end(), first_row);
    const Evaluation part = workload.evaluate(rows);
    if (!part.scores.empty()) {
      SM_CHECK(part.scores.size() == rows.size(), "an evaluation has a score for each row, or none");
      scores.resize(static_cast<std::size_t>(num_rows));
    }
    if (counts) {
      const auto at = static_cast<std::size_t>(2 * piece);
      sums[at] = part.sum;
      sums[at + 1] = part.weight;
      std::ranges::copy(part.scores, scores.begin() + (part.scores.empty() ? 0 : first_row));
    }
  }
  strategy.end_evaluation();
  if (!scores.empty()) {
    share(communicator, scores);
    return workload.quality(scores);
  }
  share(communicator, sums);
  double sum = 0;
  double weight = 0;
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    sum += sums[i];
    weight += sums[i + 1];
  }
  return sum / weight;
}

}  // namespace shardmark::train
