#include "app/bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "analysis/record_cells.hpp"
#include "app/one_voice.hpp"
#include "base/log.hpp"

namespace shardmark::app::bench {
namespace {

std::vector<analysis::Cell> cells_of(const record::CommRow& row) {
  std::vector<analysis::Cell> cells;
  for (const auto& column : record::table("comm").columns) {
    cells.push_back(analysis::cell_of(column, reinterpret_cast<const std::byte*>(&row)));
  }
  return cells;
}

std::string csv_header() {
  std::vector<analysis::Cell> names;
  for (const auto& column : record::table("comm").columns) {
    names.emplace_back(column.name);
  }
  return analysis::csv_line(names);
}

}  // namespace

void Report::begin() {
  if (!begun_) {
    begun_ = true;
    fmt::print("{}", format_ == analysis::Format::csv ? csv_header() : analysis::comm_header(view_));
  }
}

void Report::add(const record::CommRow& row) {
  if (format_ == analysis::Format::json || format_ == analysis::Format::md) {
    rows_.push_back(row);
    return;
  }
  begin();
  if (format_ == analysis::Format::csv) {
    fmt::print("{}", analysis::csv_line(cells_of(row)));
  } else {
    const bool pair = view_ == analysis::CommView::groups && row.operation.str() == "send_receive";
    num_pairs_ += pair ? 1 : 0;
    if (!pair || num_pairs_ <= kShownPairs) {
      fmt::print("{}", analysis::comm_line(row, view_));
    }
  }
  std::fflush(stdout);
}

void Report::end(const std::string& verdict) {
  if (format_ == analysis::Format::json || format_ == analysis::Format::md) {
    record::Record record;
    record.comm = rows_;
    fmt::print("{}", analysis::render(analysis::text_table(record, "comm"), format_, verdict));
  }
  let_results_pass();
  if (format_ == analysis::Format::table && num_pairs_ > kShownPairs) {
    base::log_info(
        fmt::format("{} of faster pairs left out: --format csv shows all", counted(num_pairs_ - kShownPairs, "row")));
  }
}

std::string counted(std::int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string wrong_text(std::int64_t num_wrong) {
  return fmt::format("{} {} wrong", counted(num_wrong, "received element"), num_wrong == 1 ? "is" : "are");
}

std::string results_verdict(const std::vector<record::CommRow>& rows) {
  std::int64_t wrong = 0;
  std::int64_t checked = 0;
  for (const auto& row : rows) {
    checked += row.wrong >= 0 ? 1 : 0;
    wrong += std::max<std::int64_t>(0, row.wrong);
  }
  const auto unchecked = static_cast<std::int64_t>(rows.size()) - checked;
  if (wrong > 0) {
    return wrong_text(wrong);
  }
  if (checked == 0) {
    return "nothing was checked: a barrier has no result";
  }
  return unchecked == 0 ? "all results are right" : "all results are right, but for barriers, which have none";
}

}  // namespace shardmark::app::bench
