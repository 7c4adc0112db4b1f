#pragma once
// What policies share: the keys that any of them may take, and the defaults of the profiles. Inside of src/parallel only.

#include "parallel/policy.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {

/// technique.bucket_mb, or the profile's: DeepSpeed's reduce_bucket_size is 5e8 elements (its default).
void apply_bucket_options(const StrategyOptions& options, Policy& policy);

/// technique.prefetch, live_parameters_mb, persistence_threshold, or the profile's. DeepSpeed's stage 3 defaults:
/// stage3_prefetch_bucket_size 5e7 elements, stage3_max_live_parameters 1e9 elements, stage3_param_persistence_threshold 1e5
/// elements. FSDP2 (fully_shard) gathers one unit ahead and keeps nothing whole.
void apply_gather_options(const StrategyOptions& options, Policy& policy);

}  // namespace shardmark::parallel
