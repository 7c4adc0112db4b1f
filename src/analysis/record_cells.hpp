#pragma once
// The tables of a record as cells, whatever their rows are: for what shows or converts them.

#include <cstddef>
#include <span>
#include <string_view>

#include "analysis/table.hpp"
#include "record/rows.hpp"
#include "record/schema.hpp"

namespace shardmark::analysis {

/// The rows of a table as they lie in memory, `row_bytes` each. Throws InvariantError for an unknown table.
[[nodiscard]] std::span<const std::byte> rows_of(const record::Record& record, std::string_view table);

/// A column's value in one row.
[[nodiscard]] Cell cell_of(const record::Column& column, const std::byte* row);

/// A whole table. Costs several times the memory of its rows.
[[nodiscard]] TextTable text_table(const record::Record& record, std::string_view table);

}  // namespace shardmark::analysis
