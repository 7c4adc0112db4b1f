// `zero2`: as zero1, and of the gradients each rank keeps only its part: a bucket is freed as soon as it is reduced.

#include "parallel/policy_options.hpp"

namespace shardmark::parallel {

Policy zero2_policy(const StrategyOptions& options, std::int64_t ranks) {
  Policy policy = zero1_policy(options, ranks);
  policy.shard_gradients = true;
  return policy;
}

}  // namespace shardmark::parallel
