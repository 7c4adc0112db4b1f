#include "train/replica_check.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace shardmark::train {
namespace {

/// Adds the ranks of one kind of copy that do not hold what most ranks of their key hold.
void add_odd_ranks(std::span<const parallel::Replica> by_rank, std::size_t num_ranks, std::size_t kind, std::set<int>& odd) {
  const std::size_t kinds = by_rank.size() / num_ranks;
  std::map<std::int64_t, std::map<std::uint64_t, int>> votes;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const auto& replica = by_rank[rank * kinds + kind];
    ++votes[replica.key][replica.hash];
  }
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const auto& replica = by_rank[rank * kinds + kind];
    const auto& parties = votes[replica.key];
    const int own = parties.at(replica.hash);
    const bool outvoted =
        std::ranges::any_of(parties, [&](const auto& party) { return party.first != replica.hash && party.second >= own; });
    if (outvoted) {
      odd.insert(static_cast<int>(rank));
    }
  }
}

}  // namespace

ReplicaVerdict judge_replicas(std::span<const parallel::Replica> by_rank, std::size_t num_ranks) {
  std::set<int> odd;
  for (std::size_t kind = 0; kind < by_rank.size() / num_ranks; ++kind) {
    add_odd_ranks(by_rank, num_ranks, kind, odd);
  }
  return {!by_rank.empty(), {odd.begin(), odd.end()}};
}

ReplicaVerdict compare_replicas(const parallel::Strategy& strategy, comm::Communicator& communicator, std::int64_t tag) {
  const auto mine = strategy.replicas();
  if (mine.empty()) {
    return {};
  }
  std::vector<std::int64_t> sent;
  for (const auto& replica : mine) {
    sent.push_back(static_cast<std::int64_t>(replica.hash));
    sent.push_back(replica.key);
  }
  const auto count = static_cast<std::int64_t>(sent.size());
  std::vector<std::int64_t> all(sent.size() * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather(comm::host_buffer(sent.data(), count, base::DType::int64),
                  comm::host_buffer(all.data(), count * communicator.size(), base::DType::int64), comm::Purpose::control, tag)
      .wait();
  std::vector<parallel::Replica> by_rank;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    by_rank.push_back({static_cast<std::uint64_t>(all[i]), all[i + 1]});
  }
  return judge_replicas(by_rank, static_cast<std::size_t>(communicator.size()));
}

}  // namespace shardmark::train
