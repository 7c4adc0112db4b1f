#pragma once
// A record in forms that other programs read: CSV and JSON, row after row, so that a long table costs no memory beside it.

#include <iosfwd>
#include <string_view>

#include "record/rows.hpp"

namespace shardmark::analysis {

/// One table with a line of column names. A missing number (NaN) is empty.
void write_csv(std::ostream& out, const record::Record& record, std::string_view table);
/// The root attributes: name, value.
void write_attributes_csv(std::ostream& out, const record::Record& record);

/// One object: partial (true for what an interrupted run left), attributes (object), config (the TOML text), tables (name to
/// list of rows, a row an object). A missing number (NaN) is null; text that is no UTF-8 shows as U+FFFD.
void write_json(std::ostream& out, const record::Record& record);

}  // namespace shardmark::analysis
