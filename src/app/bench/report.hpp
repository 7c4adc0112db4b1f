#pragma once
// What `shardmark comm` prints: rows as they are measured, and the verdict. Rank 0 alone uses it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/comm_table.hpp"
#include "analysis/table.hpp"
#include "record/rows.hpp"

namespace shardmark::app::bench {

/// Rows of --pairs that a terminal shows, halves not counted; the other formats and the file have all.
inline constexpr std::int64_t kShownPairs = 40;

class Report {
 public:
  Report(analysis::Format format, analysis::CommView view) : format_(format), view_(view) {}

  /// table and csv: on standard output before this returns, the names of the columns before the first row.
  void add(const record::CommRow& row);
  /// json and md: the whole. What was left out is said.
  void end(const std::string& verdict);

 private:
  void begin();

  analysis::Format format_;
  analysis::CommView view_;
  std::vector<record::CommRow> rows_;  // of formats that are one piece
  bool begun_ = false;
  std::int64_t num_pairs_ = 0;
};

/// "1 row", "2 rows".
[[nodiscard]] std::string counted(std::int64_t count, const std::string& thing);

/// "1 received element is wrong".
[[nodiscard]] std::string wrong_text(std::int64_t num_wrong);
/// What the rows prove: a barrier has no result, and one wrong element makes all of it wrong.
[[nodiscard]] std::string results_verdict(const std::vector<record::CommRow>& rows);

}  // namespace shardmark::app::bench
