#pragma once
// Records side by side. A ratio is given only between fair rows: equal settings, equal rank count, all checks passed.

#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "record/rows.hpp"

namespace shardmark::analysis {

struct Comparison {
  TextTable table;  // one row per record
  /// False if two or more records were given and no pair of them is fair.
  bool any_fair_pair = true;
  std::vector<std::string> reasons;  // why rows have no ratio, one line each
};

/// Names of the settings in which two records must agree for a ratio, as they differ; empty: a fair pair. Rank count and
/// technique may differ here: see `compare`.
[[nodiscard]] std::vector<std::string> differing_keys(const record::Record& a, const record::Record& b);

/// Why a record takes part in no ratio at all (unfinished, checks failed, oversubscribed, no throughput); "" if it may.
[[nodiscard]] std::string disqualified(const record::Record& record);

/// The other program that trained, as scripts/peers writes it ("torch 2.14.1 FSDP2"); "" for our own records.
[[nodiscard]] std::string peer_of(const record::Record& record);

/// Ratios of samples_per_s are to the first comparable row of equal world_size. `efficiency` is samples_per_s_per_gpu over
/// that of the fewest ranks (`single` counts as every technique's one-rank member), marked weak at equal rows a rank and
/// strong at equal global batch.
[[nodiscard]] Comparison compare(const std::vector<record::Record>& records);

/// Peak bytes of the run by category, each of the largest rank; categories peak at different moments, so they may add up to
/// more than the total.
[[nodiscard]] TextTable memory_table(const std::vector<record::Record>& records);

}  // namespace shardmark::analysis
