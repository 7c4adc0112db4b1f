#pragma once
// Joins lists of numbers, of any length on each rank, into one list that every rank holds.

#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::train {

/// Every rank's items, in the order of ranks. Collective.
[[nodiscard]] std::vector<double> gather_items(comm::Communicator& communicator, const std::vector<double>& mine);

}  // namespace shardmark::train
