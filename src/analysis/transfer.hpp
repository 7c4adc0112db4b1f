#pragma once
// Whether what our techniques show among each other holds for the programs whose defaults they follow: rankings and ratios of
// our records under technique.profile fsdp2 and deepspeed beside records of peers (scripts/peers).

#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "record/rows.hpp"

namespace shardmark::analysis {

struct Transfer {
  TextTable table;                   // one row per preset, number of ranks and technique that both sides have; empty: no answer
  std::string verdict;               // one sentence per preset and number of ranks, joined
  std::vector<std::string> reasons;  // records and groups left out, one line each
};

/// A group is a preset and a number of ranks with ddp and at least one more technique on both sides, all settings of fairness
/// equal. Of several records of one side and technique the median throughput counts. Two techniques are apart if the intervals
/// of their throughput do not overlap; the ranking transfers if every two that are apart on both sides stand in the same order.
/// Ratios to ddp agree if the whole interval of ours over the peer's lies between 1/1.25 and 1.25, and differ if it leaves
/// out 1.
[[nodiscard]] Transfer transfer(const std::vector<record::Record>& records);

}  // namespace shardmark::analysis
