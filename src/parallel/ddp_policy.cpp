// `ddp`: parameters, gradients and state whole on every rank; gradients all-reduced in buckets while backward goes on,
// buckets cut anew after the first step in the order in which gradients arrived.

#include "parallel/policy_options.hpp"

namespace shardmark::parallel {

Policy ddp_policy(const StrategyOptions& options, std::int64_t ranks) {
  Policy policy;
  policy.ranks = ranks;
  policy.rebuild_buckets = ranks > 1;
  apply_bucket_options(options, policy);
  return policy;
}

}  // namespace shardmark::parallel
