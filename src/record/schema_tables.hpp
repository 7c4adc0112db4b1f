#pragma once
// The tables of schema.cpp, and the builder they share. Inside the record folder only.

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "record/schema.hpp"

namespace shardmark::record {

/// Collects a table's columns; the type follows from the member.
class TableBuilder {
 public:
  TableBuilder(std::string name, std::size_t row_bytes, std::string meaning) {
    table_.name = std::move(name);
    table_.row_bytes = row_bytes;
    table_.meaning = std::move(meaning);
  }

  struct Texts {
    std::string unit;
    std::string definition;
    std::string source;
    std::string formula = "";
    std::string traps = "";
  };

  template <typename Member>
  TableBuilder& add(std::string name, std::size_t offset, Texts texts) {
    const ColumnType type = std::is_same_v<Member, std::int64_t> ? ColumnType::int64
                            : std::is_same_v<Member, double>     ? ColumnType::float64
                                                                 : ColumnType::text;
    table_.columns.push_back({std::move(name), type, offset, sizeof(Member), std::move(texts.unit), std::move(texts.definition),
                              std::move(texts.formula), std::move(texts.source), std::move(texts.traps)});
    return *this;
  }

  [[nodiscard]] Table take() { return std::move(table_); }

 private:
  Table table_;
};

[[nodiscard]] Table ranks_table();
[[nodiscard]] Table environment_table();
[[nodiscard]] Table config_keys_table();
[[nodiscard]] Table steps_table();
[[nodiscard]] Table memory_table();
[[nodiscard]] Table collectives_table();
[[nodiscard]] Table evaluations_table();
[[nodiscard]] Table checks_table();
[[nodiscard]] Table summary_table();
[[nodiscard]] Table telemetry_table();
[[nodiscard]] Table health_table();
[[nodiscard]] Table transport_table();
[[nodiscard]] Table trace_table();
[[nodiscard]] Table trace_ranks_table();
[[nodiscard]] Table comm_table();

}  // namespace shardmark::record

/// One column: the member names it, so that a renamed member cannot be described under its old name.
#define SM_COLUMN(Row, member, ...) add<decltype(Row::member)>(#member, offsetof(Row, member), {__VA_ARGS__})
