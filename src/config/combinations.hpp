#pragma once
// Which values do not go together, whatever the number of ranks. Inside of src/config only.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.hpp"

namespace shardmark::config {

/// "6 or 8": the multiples of `unit` next to `wanted`; "8" if none lies below.
[[nodiscard]] std::string nearest_multiples(std::int64_t wanted, std::int64_t unit);

/// Every combination that cannot work. A rule whose keys are not all `sound` (set without a problem) stays silent, as its
/// verdict would only follow from that problem.
[[nodiscard]] std::vector<std::string> impossible_combinations(const RunConfig& config,
                                                               const std::function<bool(std::string_view)>& sound);

}  // namespace shardmark::config
