// `zero1`: optimizer state sharded. Gradients stay whole until each rank has the sum of its part; the updated parts are
// gathered once.

#include "parallel/policy_options.hpp"

namespace shardmark::parallel {

Policy zero1_policy(const StrategyOptions& options, std::int64_t ranks) {
  Policy policy;
  policy.ranks = ranks;
  policy.shard_state = true;
  policy.shards = ranks;
  apply_bucket_options(options, policy);
  return policy;
}

}  // namespace shardmark::parallel
