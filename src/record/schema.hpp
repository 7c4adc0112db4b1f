#pragma once
// Every column of every table of a record, described once: this drives the HDF5 types, the units stored beside the data,
// `explain` and its tests.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/rows.hpp"

namespace shardmark::record {

enum class ColumnType : std::uint8_t { int64, float64, text };

struct Column {
  std::string name;
  ColumnType type = ColumnType::int64;
  std::size_t offset = 0;  // in the row's struct
  std::size_t size = 0;    // bytes
  std::string unit;        // "s", "bytes", "1/s", "1" for plain numbers, "" for texts
  std::string definition;
  std::string formula;  // "" where the definition says it all
  std::string source;   // who measures or decides it
  std::string traps;    // what people read wrongly; "" if nothing is known
};

struct Table {
  std::string name;  // "steps"
  std::size_t row_bytes = 0;
  std::string meaning;
  std::vector<Column> columns;
};

[[nodiscard]] std::span<const Table> tables();
/// Throws InvariantError for an unknown table: names come from our code.
[[nodiscard]] const Table& table(std::string_view name);
/// Root attributes of a record: name, definition (types are texts and whole numbers).
[[nodiscard]] std::span<const Column> attributes();

}  // namespace shardmark::record
