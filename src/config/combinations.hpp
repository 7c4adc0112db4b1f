#pragma once
// Which values do not go together, whatever the number of ranks. Inside of src/config only.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.hpp"

namespace shardmark::config {

/// Every combination that cannot work. A rule whose keys are not all `sound` (set without a problem) stays silent, as its
/// verdict would only follow from that problem.
[[nodiscard]] std::vector<std::string> impossible_combinations(const RunConfig& config,
                                                               const std::function<bool(std::string_view)>& sound);

}  // namespace shardmark::config
