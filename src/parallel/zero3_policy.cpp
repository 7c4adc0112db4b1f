// `zero3`: parameters, gradients and state sharded over all ranks. A unit is gathered ahead of its use in forward and again in
// backward, in the recorded order; tensors below the persistence threshold may stay whole, and, under DeepSpeed's profile,
// units that backward soon comes to.

#include "parallel/policy_options.hpp"

namespace shardmark::parallel {

Policy zero3_policy(const StrategyOptions& options, std::int64_t ranks) {
  Policy policy = zero2_policy(options, ranks);
  policy.shard_parameters = true;
  apply_gather_options(options, policy);
  return policy;
}

}  // namespace shardmark::parallel
