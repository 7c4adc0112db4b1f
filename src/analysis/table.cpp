#include "analysis/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace shardmark::analysis {
namespace {

/// For people: six significant digits.
std::string short_text(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    return text->empty() ? "-" : *text;
  }
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    return std::to_string(*whole);
  }
  const double value = std::get<double>(cell);
  return std::isnan(value) ? "-" : fmt::format("{:.6g}", value);
}

std::string replace_all(std::string text, std::string_view old_part, std::string_view new_part) {
  for (std::size_t at = 0; (at = text.find(old_part, at)) != std::string::npos; at += new_part.size()) {
    text.replace(at, old_part.size(), new_part);
  }
  return text;
}

/// One line a row: line ends inside a text show as they are written in C.
std::string terminal_text(const Cell& cell) {
  return replace_all(replace_all(short_text(cell), "\r", "\\r"), "\n", "\\n");
}

/// A bar ends a cell and a line end ends the row; a backslash in front of a bar would undo the bar's own.
std::string md_text(const Cell& cell) {
  std::string text = replace_all(replace_all(short_text(cell), "\\", "\\\\"), "|", "\\|");
  for (const char* line_end : {"\r\n", "\n", "\r"}) {
    text = replace_all(std::move(text), line_end, "<br>");
  }
  return text;
}

std::string csv_text(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    if (text->find_first_of(",\"\n\r") == std::string::npos) {
      return *text;
    }
    std::string quoted = "\"";
    for (const char character : *text) {
      quoted += character == '"' ? "\"\"" : std::string(1, character);
    }
    return quoted + "\"";
  }
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    return std::to_string(*whole);
  }
  const double value = std::get<double>(cell);
  return std::isnan(value) ? "" : fmt::format("{}", value);
}

nlohmann::ordered_json json_value(const Cell& cell) {
  return std::visit([](const auto& value) -> nlohmann::ordered_json { return value; }, cell);  // NaN becomes null
}

std::string render_json(const TextTable& table, const std::optional<std::string>& verdict) {
  auto document = nlohmann::ordered_json::object();
  document["rows"] = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    auto object = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      object[table.columns[i]] = json_value(row[i]);
    }
    document["rows"].push_back(std::move(object));
  }
  if (verdict) {
    document["verdict"] = *verdict;
  }
  // Texts of other programs' files may be no UTF-8: JSON cannot carry them, so what is wrong shows as U+FFFD.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string render_csv(const TextTable& table) {
  std::string text = csv_line({table.columns.begin(), table.columns.end()});
  for (const auto& row : table.rows) {
    text += csv_line(row);
  }
  return text;
}

std::string render_md(const TextTable& table) {
  std::string text = "|";
  for (const auto& column : table.columns) {
    text += " " + md_text(column) + " |";
  }
  text += "\n|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    text += "---|";
  }
  for (const auto& row : table.rows) {
    text += "\n|";
    for (const auto& cell : row) {
      text += " " + md_text(cell) + " |";
    }
  }
  return text + "\n";
}

std::string render_aligned(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = table.columns[i].size();
    for (const auto& row : table.rows) {
      width = std::max(width, terminal_text(row[i]).size());
    }
    widths.push_back(width);
  }
  std::string text;
  const auto add = [&](std::size_t column, const std::string& cell, bool right) {
    const bool last = column + 1 == widths.size();
    text += right ? fmt::format("{:>{}}", cell, widths[column]) : fmt::format("{:<{}}", cell, last ? 0 : widths[column]);
    text += last ? "\n" : "  ";
  };
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool right = !table.rows.empty() && !std::holds_alternative<std::string>(table.rows.front()[i]);
    add(i, table.columns[i], right);
  }
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      add(i, terminal_text(row[i]), !std::holds_alternative<std::string>(row[i]));
    }
  }
  return text;
}

}  // namespace

Format parse_format(const std::string& name) {
  if (name == "table") {
    return Format::table;
  }
  if (name == "json") {
    return Format::json;
  }
  if (name == "csv") {
    return Format::csv;
  }
  if (name == "md") {
    return Format::md;
  }
  throw base::ConfigError("--format " + name + ": accepted are table, json, csv, md");
}

std::string csv_line(const std::vector<Cell>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += (i > 0 ? "," : "") + csv_text(cells[i]);
  }
  return line + "\n";
}

std::string render(const TextTable& table, Format format, const std::optional<std::string>& verdict) {
  switch (format) {
    case Format::json: return render_json(table, verdict);
    case Format::csv: return render_csv(table);
    case Format::md: return render_md(table);
    case Format::table: break;
  }
  return render_aligned(table);
}

}  // namespace shardmark::analysis
