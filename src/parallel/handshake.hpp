#pragma once
// Before anything is shared, ranks compare what they are about to share.

#include "comm/communicator.hpp"
#include "model/parameter.hpp"

namespace shardmark::parallel {

/// Compares names, shapes and trainability of all parameters over the group. Collective. Throws MismatchError on every rank,
/// naming the first parameter that differs from rank 0's and both descriptions.
void compare_parameters(const model::ParameterList& list, comm::Communicator& communicator);

}  // namespace shardmark::parallel
