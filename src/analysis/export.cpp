#include "analysis/export.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "analysis/record_cells.hpp"
#include "record/attribute_values.hpp"

namespace shardmark::analysis {
namespace {

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

template <typename Variant>
nlohmann::ordered_json json_of(const Variant& variant) {
  return std::visit([](const auto& value) -> nlohmann::ordered_json { return value; }, variant);  // NaN becomes null
}

/// Calls `visit` with a pointer to each row.
template <typename Visit>
void for_each_row(const record::Record& record, const record::Table& table, const Visit& visit) {
  const auto rows = rows_of(record, table.name);
  for (std::size_t at = 0; at < rows.size(); at += table.row_bytes) {
    visit(rows.data() + at);
  }
}

void write_rows(std::ostream& out, const record::Record& record, const record::Table& table) {
  std::vector<std::string> keys;
  for (const auto& column : table.columns) {
    keys.push_back(json_text(column.name) + ": ");
  }
  bool first = true;
  for_each_row(record, table, [&](const std::byte* row) {
    out << (first ? "\n   {" : ",\n   {");
    first = false;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      out << (i > 0 ? ", " : "") << keys[i] << json_text(json_of(cell_of(table.columns[i], row)));
    }
    out << "}";
  });
}

}  // namespace

void write_csv(std::ostream& out, const record::Record& record, std::string_view table) {
  const auto& schema = record::table(table);
  std::vector<Cell> cells;
  for (const auto& column : schema.columns) {
    cells.emplace_back(column.name);
  }
  out << csv_line(cells);
  for_each_row(record, schema, [&](const std::byte* row) {
    cells.clear();
    for (const auto& column : schema.columns) {
      cells.push_back(cell_of(column, row));
    }
    out << csv_line(cells);
  });
}

void write_attributes_csv(std::ostream& out, const record::Record& record) {
  out << csv_line({std::string("name"), std::string("value")});
  for (const auto& [name, value] : record::attribute_values(record.attributes)) {
    out << csv_line({name, std::visit([](const auto& held) -> Cell { return held; }, value)});
  }
}

void write_json(std::ostream& out, const record::Record& record) {
  auto attributes = nlohmann::ordered_json::object();
  for (const auto& [name, value] : record::attribute_values(record.attributes)) {
    attributes[name] = json_of(value);
  }
  out << "{\n \"partial\": " << (record.partial ? "true" : "false") << ",\n \"attributes\": " << json_text(attributes)
      << ",\n \"config\": " << json_text(record.config_toml) << ",\n \"tables\": {";
  bool first = true;
  for (const auto& table : record::tables()) {
    out << (first ? "\n  " : ",\n  ") << json_text(table.name) << ": [";
    first = false;
    write_rows(out, record, table);
    out << "]";
  }
  out << "\n }\n}\n";
}

}  // namespace shardmark::analysis
