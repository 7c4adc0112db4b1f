// `shardmark explain`: what a column of a record or of a command's table means.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/columns.hpp"
#include "app/command.hpp"
#include "base/text.hpp"
#include "record/schema.hpp"

namespace shardmark::app {
namespace {

void print_column(const std::string& where, const record::Column& column) {
  constexpr const char* kTypes[] = {"int64", "float64", "text"};
  fmt::print("{}\n  definition  {}\n", where, column.definition);
  if (!column.formula.empty()) {
    fmt::print("  formula     {}\n", column.formula);
  }
  fmt::print("  unit        {} ({})\n  source      {}\n", column.unit.empty() ? "none" : column.unit,
             kTypes[static_cast<std::size_t>(column.type)], column.source);
  if (!column.traps.empty()) {
    fmt::print("  trap        {}\n", column.traps);
  }
}

base::ExitCode explain(const std::string& metric) {
  std::vector<std::string> names;
  bool found = false;
  const auto visit = [&](const std::string& owner, const record::Column& column) {
    const std::string where = owner + column.name;
    const std::string bare = where.substr(where.rfind('.') + 1);
    names.push_back(bare);
    if (bare.size() < where.size()) {
      names.push_back(where.substr(0, where.rfind('.')));
    }
    if (metric == bare || metric == where) {
      print_column(where, column);
      found = true;
    } else if (metric.empty() || where.starts_with(metric + ".")) {
      fmt::print("{:<40} {}\n", where, column.definition);
      found = true;
    }
  };
  for (const auto& table : record::tables()) {
    if (metric == table.name) {
      fmt::print("/{} of a record: {}\n", table.name, table.meaning);
    }
    for (const auto& column : table.columns) {
      visit(table.name + ".", column);
    }
  }
  for (const auto& attribute : record::attributes()) {
    visit("", attribute);
  }
  for (const auto& column : analysis::derived_columns()) {
    visit("", column);
  }
  if (!found && !metric.empty()) {
    const auto near = base::closest_name(metric, names);
    throw base::ConfigError(fmt::format("no column or table is called {}{}; `shardmark explain` lists all", metric,
                                        near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
  }
  return base::ExitCode::good;
}

}  // namespace

void add_explain_command(CLI::App& program, Action& chosen) {
  auto* command =
      program.add_subcommand("explain", "definition, formula, unit, source and traps of a column; without a name, all of them");
  command->footer("Example: shardmark explain samples_per_s");
  auto metric = std::make_shared<std::string>();
  command->add_option("metric", *metric, "a column, TABLE.COLUMN, or a table for the list of its columns");
  command->callback([&chosen, metric] { chosen = [metric] { return explain(*metric); }; });
}

}  // namespace shardmark::app
