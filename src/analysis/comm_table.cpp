#include "analysis/comm_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace shardmark::analysis {
namespace {

using record::CommRow;

struct Field {
  const char* name;
  int width;  // never below that of the name
  bool right;
  std::string (*text)(const CommRow&);
};

std::string or_dash(std::string text) {
  return text.empty() ? "-" : text;
}

std::string fixed(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

/// Hundredths of a microsecond are what a call of 8 bytes can be told by.
std::string microseconds(double time_s) {
  return fixed(time_s * 1e6, 2);
}

/// A barrier has no message, place or result.
std::string unless_missing(std::int64_t value) {
  return value < 0 ? "-" : std::to_string(value);
}

constexpr Field kOperation{"operation", 14, false, [](const CommRow& row) { return row.operation.str(); }};
constexpr Field kBytes{"message_bytes", 13, true, [](const CommRow& row) { return std::to_string(row.message_bytes); }};
constexpr Field kMedian{"time_p50_us", 11, true, [](const CommRow& row) { return microseconds(row.time_p50_s); }};
constexpr Field kP99{"time_p99_us", 11, true, [](const CommRow& row) { return microseconds(row.time_p99_s); }};
constexpr Field kAlgbw{"algbw_gb_s", 10, true, [](const CommRow& row) { return fixed(row.algbw_gb_s, 3); }};
constexpr Field kBusbw{"busbw_gb_s", 10, true, [](const CommRow& row) { return fixed(row.busbw_gb_s, 3); }};
constexpr Field kWrong{"wrong", 5, true, [](const CommRow& row) { return unless_missing(row.wrong); }};

constexpr Field kSizes[] = {kOperation,
                            {"dtype", 5, false, [](const CommRow& row) { return or_dash(row.dtype.str()); }},
                            {"reduction", 9, false, [](const CommRow& row) { return or_dash(row.reduction.str()); }},
                            {"in_place", 8, true, [](const CommRow& row) { return unless_missing(row.in_place); }},
                            kBytes,
                            {"count", 11, true, [](const CommRow& row) { return std::to_string(row.count); }},
                            kMedian,
                            kP99,
                            kAlgbw,
                            kBusbw,
                            kWrong};
constexpr Field kGroups[] = {kOperation,
                             {"group", 24, false, [](const CommRow& row) { return row.group.str(); }},
                             {"ranks", 5, true, [](const CommRow& row) { return std::to_string(row.ranks); }},
                             kBytes,
                             kMedian,
                             kP99,
                             kAlgbw,
                             kBusbw,
                             kWrong};

std::span<const Field> fields_of(CommView view) {
  return view == CommView::sizes ? std::span<const Field>(kSizes) : std::span<const Field>(kGroups);
}

template <typename Text>
std::string line_of(CommView view, const Text& text_of) {
  std::string line;
  for (const auto& field : fields_of(view)) {
    const std::string text = text_of(field);
    line += line.empty() ? "" : " ";
    line += field.right ? fmt::format("{:>{}}", text, field.width) : fmt::format("{:<{}}", text, field.width);
  }
  return line + "\n";
}

}  // namespace

CommView view_of(const std::vector<CommRow>& rows) {
  const bool one_group =
      std::ranges::all_of(rows, [&](const CommRow& row) { return row.group.data == rows.front().group.data; });
  return one_group ? CommView::sizes : CommView::groups;
}

std::string comm_header(CommView view) {
  return line_of(view, [](const Field& field) { return std::string(field.name); });
}

std::string comm_line(const CommRow& row, CommView view) {
  return line_of(view, [&](const Field& field) { return field.text(row); });
}

std::vector<std::string> comm_column_names(CommView view) {
  std::vector<std::string> names;
  for (const auto& field : fields_of(view)) {
    names.emplace_back(field.name);
  }
  return names;
}

}  // namespace shardmark::analysis
