#include "model/auroc.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace shardmark::model {

double auroc(std::span<const double> scores, std::span<const float> labels) {
  SM_CHECK(scores.size() == labels.size(), "scores without labels");
  std::vector<std::pair<double, bool>> rows;
  rows.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) {
      return scores[i];
    }
    rows.emplace_back(scores[i], labels[i] >= 0.5F);
  }
  std::ranges::sort(rows);
  // A count of half pairs: 64 bits hold it for up to three thousand million rows.
  std::int64_t half_pairs = 0;
  std::int64_t positives = 0;
  std::int64_t negatives = 0;
  for (std::size_t i = 0; i < rows.size();) {
    std::int64_t tied[2] = {0, 0};
    const double score = rows[i].first;
    for (; i < rows.size() && rows[i].first == score; ++i) {
      ++tied[rows[i].second ? 1 : 0];
    }
    half_pairs += tied[1] * (2 * negatives + tied[0]);
    negatives += tied[0];
    positives += tied[1];
  }
  if (positives == 0 || negatives == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(half_pairs) / (2.0 * static_cast<double>(positives) * static_cast<double>(negatives));
}

}  // namespace shardmark::model
