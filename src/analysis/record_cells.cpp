#include "analysis/record_cells.hpp"

#include <cstring>
#include <string>

#include "base/error.hpp"

namespace shardmark::analysis {

std::span<const std::byte> rows_of(const record::Record& record, std::string_view table) {
  const auto bytes = [](const auto& rows) { return std::as_bytes(std::span(rows)); };
  if (table == "config_keys") {
    return bytes(record.config_keys);
  }
  if (table == "ranks") {
    return bytes(record.ranks);
  }
  if (table == "environment") {
    return bytes(record.environment);
  }
  if (table == "steps") {
    return bytes(record.steps);
  }
  if (table == "memory") {
    return bytes(record.memory);
  }
  if (table == "collectives") {
    return bytes(record.collectives);
  }
  if (table == "evaluations") {
    return bytes(record.evaluations);
  }
  if (table == "checks") {
    return bytes(record.checks);
  }
  if (table == "summary") {
    return bytes(record.summary);
  }
  if (table == "telemetry") {
    return bytes(record.telemetry);
  }
  if (table == "health") {
    return bytes(record.health);
  }
  if (table == "transport") {
    return bytes(record.transport);
  }
  if (table == "trace") {
    return bytes(record.trace);
  }
  if (table == "comm") {
    return bytes(record.comm);
  }
  SM_CHECK(table == "trace_ranks", "no table " + std::string(table));
  return bytes(record.trace_ranks);
}

Cell cell_of(const record::Column& column, const std::byte* row) {
  const auto* at = reinterpret_cast<const char*>(row) + column.offset;
  if (column.type == record::ColumnType::text) {
    return std::string(at, strnlen(at, column.size));
  }
  if (column.type == record::ColumnType::int64) {
    std::int64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  double value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

TextTable text_table(const record::Record& record, std::string_view table) {
  const auto& schema = record::table(table);
  const auto rows = rows_of(record, table);
  TextTable text;
  for (const auto& column : schema.columns) {
    text.columns.push_back(column.name);
  }
  for (std::size_t at = 0; at < rows.size(); at += schema.row_bytes) {
    std::vector<Cell> cells;
    for (const auto& column : schema.columns) {
      cells.push_back(cell_of(column, rows.data() + at));
    }
    text.rows.push_back(std::move(cells));
  }
  return text;
}

}  // namespace shardmark::analysis
