// `shardmark show`: one record for people.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/comm_table.hpp"
#include "analysis/record_cells.hpp"
#include "analysis/table.hpp"
#include "app/command.hpp"
#include "app/open_record.hpp"
#include "base/text.hpp"
#include "record/schema.hpp"

namespace shardmark::app {
namespace {

using analysis::Cell;
using analysis::TextTable;

/// Attributes and summary, one value a row.
TextTable overview(const record::Record& record) {
  TextTable text;
  text.columns = {"name", "value", "unit"};
  const auto& a = record.attributes;
  const auto add = [&](const char* name, Cell value) {
    text.rows.push_back({std::string(name), std::move(value), std::string()});
  };
  add("status", a.status);
  add("error", a.error);
  add("exit_code", a.exit_code);
  add("preset", a.preset);
  add("workload", a.workload);
  add("technique", a.technique);
  add("world_size", a.world_size);
  add("created", a.created);
  add("shardmark_version", a.shardmark_version);
  add("commit", a.commit);
  add("dirty", a.dirty);
  add("definition_version", a.definition_version);
  add("config_hash", a.config_hash);
  add("binary_hash", a.binary_hash);
  add("run_id", a.run_id);
  add("job_id", a.job_id);
  add("attempt", a.attempt);
  for (const auto& row : record.summary) {
    for (const auto& column : record::table("summary").columns) {
      text.rows.push_back({column.name, analysis::cell_of(column, reinterpret_cast<const std::byte*>(&row)),
                           column.unit == "1" ? std::string() : column.unit});
    }
  }
  return text;
}

/// The rank whose time outside the communicator is largest: the one the others wait for.
std::string slowest_rank(const record::Record& record) {
  std::map<std::int64_t, double> work_s;
  std::int64_t timed = 0;
  for (const auto& row : record.steps) {
    if (row.timed > 0) {
      work_s[row.rank] += row.total_s - row.comm_exposed_s;
      timed += row.rank == 0 ? 1 : 0;
    }
  }
  if (work_s.size() < 2 || timed == 0) {
    return "";
  }
  const auto slowest = std::ranges::max_element(work_s, {}, [](const auto& entry) { return entry.second; });
  const auto fastest = std::ranges::min_element(work_s, {}, [](const auto& entry) { return entry.second; });
  return fmt::format("most work: rank {} with {:.4g} ms a step outside communication, least: rank {} with {:.4g} ms\n",
                     slowest->first, slowest->second / static_cast<double>(timed) * 1e3, fastest->first,
                     fastest->second / static_cast<double>(timed) * 1e3);
}

const std::vector<std::string> kTables{"ranks",       "environment", "config_keys", "steps",  "memory",    "collectives",
                                       "evaluations", "checks",      "telemetry",   "health", "transport", "comm"};

std::string table_names() {
  return "overview, " + base::join(kTables, ", ");
}

base::ExitCode show(const std::string& file, const std::string& format_name, const std::string& table_name) {
  const auto format = analysis::parse_format(format_name);
  const auto record = open_record(file);
  std::map<std::string, TextTable> tables{{"overview", overview(record)}};
  for (const auto& name : kTables) {
    tables.emplace(name, analysis::text_table(record, name));
  }
  if (!tables.contains(table_name) && table_name != "") {
    throw base::ConfigError("--table " + table_name + ": accepted are " + table_names());
  }
  if (!table_name.empty() || format != analysis::Format::table) {
    fmt::print("{}", analysis::render(tables.at(table_name.empty() ? "overview" : table_name), format));
    return base::ExitCode::good;
  }
  if (!record.comm.empty()) {  // of `shardmark comm`, which fills no other table of results
    const auto view = analysis::view_of(record.comm);
    fmt::print("overview\n{}\ncomm (--table comm shows every column)\n{}", analysis::render(tables.at("overview"), format),
               analysis::comm_header(view));
    for (const auto& row : record.comm) {
      fmt::print("{}", analysis::comm_line(row, view));
    }
    return base::ExitCode::good;
  }
  for (const char* name : {"overview", "checks", "collectives"}) {
    fmt::print("{}\n{}\n", name, analysis::render(tables.at(name), format));
  }
  TextTable memory = tables.at("memory");
  std::erase_if(memory.rows, [](const auto& row) { return std::get<std::string>(row[1]) != "run"; });
  fmt::print("memory (phase run; --table memory shows all)\n{}\n{}", analysis::render(memory, format), slowest_rank(record));
  return base::ExitCode::good;
}

}  // namespace

void add_show_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand(
      "show", "one record: summary, checks, collectives, memory, the slowest rank; of `comm`: its table");
  command->footer("Example: shardmark show digits.h5 --table steps --format csv");
  struct Arguments {
    std::string file;
    std::string format = "table";
    std::string table;
  };
  auto arguments = std::make_shared<Arguments>();
  command->add_option("file", arguments->file, "a record, also FILE.h5.partial")->required();
  command->add_option("--format", arguments->format, "table, json, csv or md");
  command->add_option("--table", arguments->table, "one table: " + table_names());
  command->callback(
      [&chosen, arguments] { chosen = [arguments] { return show(arguments->file, arguments->format, arguments->table); }; });
}

}  // namespace shardmark::app
