// `fsdp`: as zero3, unit by unit, with a choice of what stays after forward and of the ranks that share one copy (hybrid:
// groups of consecutive ranks hold whole replicas, whose shards are all-reduced across groups).

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "parallel/policy_options.hpp"

namespace shardmark::parallel {
namespace {

std::string divisors_between(std::int64_t low, std::int64_t high, std::int64_t of) {
  std::vector<std::string> found;
  for (std::int64_t value = low; value <= high; ++value) {
    if (of % value == 0) {
      found.push_back(std::to_string(value));
    }
  }
  return found.empty() ? "none" : base::join(found, ", ");
}

}  // namespace

Policy fsdp_policy(const StrategyOptions& options, std::int64_t ranks) {
  Policy policy;
  policy.ranks = ranks;
  policy.shard_parameters = policy.shard_gradients = policy.shard_state = true;
  policy.shards = options.shard_group == 0 ? ranks : options.shard_group;
  policy.after_forward = options.after_forward.value_or(AfterForward::free);
  policy.parts = options.parts;
  std::vector<std::string> problems;
  if (policy.shards > ranks || ranks % policy.shards != 0) {
    problems.push_back(
        fmt::format("technique.shard_group = {} does not divide the {} ranks: accepted are 0 (all), \"node\", {}",
                    policy.shards, ranks, divisors_between(1, ranks, ranks)));
  } else if (policy.after_forward == AfterForward::keep_part &&
             (policy.parts <= 1 || policy.parts >= policy.shards || policy.shards % policy.parts != 0)) {
    problems.push_back(
        fmt::format("technique.reshard_after_forward = {}: it must divide the {} ranks that share one copy and "
                    "lie between 1 and that number; accepted are true, false, {}",
                    policy.parts, policy.shards, divisors_between(2, policy.shards - 1, policy.shards)));
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  apply_bucket_options(options, policy);
  apply_gather_options(options, policy);
  // torch.distributed.fsdp.fully_shard: the root unit is not resharded after forward unless asked for.
  policy.keep_root = options.profile == "fsdp2" && !options.after_forward.has_value();
  if (options.after_forward) {
    policy.reuse_elements = 0;
  }
  return policy;
}

}  // namespace shardmark::parallel
