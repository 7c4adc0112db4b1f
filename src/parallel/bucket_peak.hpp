#pragma once
// The most memory that gradients take on their way into reductions. Pure arithmetic, no tensors: follows a backward pass in
// reverse order of declaration, bucket by bucket.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/group_plan.hpp"
#include "parallel/precision.hpp"
#include "parallel/predict.hpp"

namespace shardmark::parallel {

/// Buckets that may be under way when the next one is to start: one travels while another fills.
inline constexpr std::size_t kMostFlights = 2;

/// Bytes; an upper bound that is reached where the network is slower than backward. Buckets of the root are taken to fill from
/// the first gradient of the pass to the last.
[[nodiscard]] std::int64_t most_bucket_bytes(const std::vector<GroupPlan>& groups, const Policy& policy,
                                             const Precision& precision, const StepShape& shape);

}  // namespace shardmark::parallel
