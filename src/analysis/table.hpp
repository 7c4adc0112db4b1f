#pragma once
// A small table and its four forms: aligned text for a terminal, JSON, CSV, Markdown.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace shardmark::analysis {

/// Missing numbers are NaN and print as "-" (JSON: null, CSV: empty).
using Cell = std::variant<std::string, std::int64_t, double>;

struct TextTable {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

enum class Format { table, json, csv, md };
/// Throws ConfigError naming the accepted formats.
[[nodiscard]] Format parse_format(const std::string& name);

/// `verdict` joins the JSON object beside `rows`; the other forms leave it to the caller. Ends with a line end.
[[nodiscard]] std::string render(const TextTable& table, Format format,
                                 const std::optional<std::string>& verdict = std::nullopt);

/// One row as CSV, with its line end.
[[nodiscard]] std::string csv_line(const std::vector<Cell>& cells);

}  // namespace shardmark::analysis
