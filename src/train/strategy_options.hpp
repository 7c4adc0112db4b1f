#pragma once
// From a run's configuration to what a strategy is made from.

#include "config/run_config.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::train {

/// `node_ranks`: ranks on a node, what technique.shard_group = "node" means. A key that nobody gave leaves the choice to the
/// profile. `device`: where training runs; lent; nullptr: host memory.
[[nodiscard]] parallel::StrategyOptions strategy_options(const config::RunConfig& config, const config::BatchPlan& batch,
                                                         std::int64_t node_ranks, base::FaultPlan& faults,
                                                         device::Device* device = nullptr);

}  // namespace shardmark::train
