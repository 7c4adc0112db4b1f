#pragma once
// The most memory that gradients take on their way into reductions. Pure arithmetic, no tensors: follows a backward pass unit
// by unit.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/group_plan.hpp"
#include "parallel/precision.hpp"
#include "parallel/predict.hpp"

namespace shardmark::parallel {

/// Buckets that may be under way when the next one is to start: one travels while another fills.
inline constexpr std::size_t kMostFlights = 2;

/// Bytes; an upper bound that is reached where the network is slower than backward. Units come in reverse order of declaration,
/// their gradients in any order; those of the root at any time, but what lies behind the units first.
[[nodiscard]] std::int64_t most_bucket_bytes(const std::vector<GroupPlan>& groups,
                                             const std::vector<ParameterFacts>& parameters, const Policy& policy,
                                             const Precision& precision, const StepShape& shape);

}  // namespace shardmark::parallel
