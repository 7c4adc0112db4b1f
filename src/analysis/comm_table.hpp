#pragma once
// /comm as people read it: few columns of fixed width, so that a line can be printed as soon as its row is measured, times in
// microseconds, at most 120 characters. Everything else of a row is in the record, CSV and JSON.

#include <string>
#include <vector>

#include "record/rows.hpp"

namespace shardmark::analysis {

/// sizes: what changes is operation, type and size; groups: what changes is who took part (--pairs).
enum class CommView { sizes, groups };
/// groups if the rows are of several groups.
[[nodiscard]] CommView view_of(const std::vector<record::CommRow>& rows);

/// The names of the columns, and a row under them; each ends with a line end. `shardmark explain` knows every name.
[[nodiscard]] std::string comm_header(CommView view);
[[nodiscard]] std::string comm_line(const record::CommRow& row, CommView view);

/// Names of the columns, for tests and documentation.
[[nodiscard]] std::vector<std::string> comm_column_names(CommView view);

}  // namespace shardmark::analysis
