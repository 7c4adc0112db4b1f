// `single`: one rank, everything whole, nothing to communicate.

#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/policy_options.hpp"

namespace shardmark::parallel {

Policy single_policy(const StrategyOptions& options, std::int64_t ranks) {
  if (ranks != 1) {
    throw base::ConfigError(fmt::format(
        "technique.name = \"single\" trains on one rank, not on {}: start one, or choose another technique", ranks));
  }
  return ddp_policy(options, ranks);
}

}  // namespace shardmark::parallel
