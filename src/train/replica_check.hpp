#pragma once
// Whether ranks that hold copies of the same parameters hold equal ones.

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::train {

struct ReplicaVerdict {
  bool compared = false;  // false: no two ranks hold the same parameters
  /// Ranks whose copy is not the one that most ranks hold. Where no copy has a majority over each other one, as between two
  /// ranks, nobody knows whose is right: all that hold one are named.
  std::vector<int> odd_ranks;
};

/// Collective; the verdict is equal on all ranks. `tag` goes with the message.
[[nodiscard]] ReplicaVerdict compare_replicas(const parallel::Strategy& strategy, comm::Communicator& communicator,
                                              std::int64_t tag);

/// The verdict on what all ranks sent, rank after rank, equally many each.
[[nodiscard]] ReplicaVerdict judge_replicas(std::span<const parallel::Replica> by_rank, std::size_t num_ranks);

}  // namespace shardmark::train
