#pragma once
// `shardmark comm --pairs`: which two nodes talk slowly to each other. Every two meet once, disjoint pairs at the same time;
// what was slow is measured again alone. Before it, all_reduce in ever smaller halves.

#include <functional>
#include <string>
#include <vector>

#include "app/bench/measure.hpp"
#include "app/bench/pair_judge.hpp"

namespace shardmark::app::bench {

/// Known on rank 0.
struct PairsOutcome {
  std::vector<record::CommRow> rows;  // halves, then pairs, the slowest first
  std::string verdict;
  bool found_bad = false;
  std::int64_t num_wrong = 0;
};

/// What a message of --pairs has where --max does not say it, and how many are timed where --iterations does not.
inline constexpr std::int64_t kPairBytes = std::int64_t{4} << 20;
inline constexpr std::int64_t kPairIterations = 10;

/// Takes rows, on rank 0, in the order of PairsOutcome::rows: halves as they are measured, pairs once all of them are.
using RowSink = std::function<void(const record::CommRow&)>;

/// Collective over the world, which the stack spans. Needs two ranks. Nodes are compared by their first ranks; of one
/// node its ranks. A rank takes no more memory than two buffers of the message.
[[nodiscard]] PairsOutcome search_pairs(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options,
                                        base::FaultPlan& faults, const RowSink& sink);

}  // namespace shardmark::app::bench
