// `shardmark compare`: records side by side; refuses unfair pairs and says why.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/compare.hpp"
#include "app/command.hpp"
#include "base/log.hpp"
#include "record/reader.hpp"

namespace shardmark::app {
namespace {

base::ExitCode compare(const std::vector<std::string>& files, const std::string& format_name, bool memory) {
  const auto format = analysis::parse_format(format_name);
  std::vector<record::Record> records;
  std::vector<std::string> problems;
  for (const auto& file : files) {
    try {
      records.push_back(record::read_record(file));
      if (records.back().partial) {
        base::log_warning(file + ": read from an interrupted run's .partial");
      }
    } catch (const base::DataError& error) {
      problems.emplace_back(error.what());
    }
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  if (memory) {
    fmt::print("{}", analysis::render(analysis::memory_table(records), format));
    return base::ExitCode::good;
  }
  const auto result = analysis::compare(records);
  fmt::print("{}", analysis::render(result.table, format));
  for (const auto& reason : result.reasons) {
    base::log_info("no ratio for " + reason);
  }
  if (!result.any_fair_pair) {
    base::log_error("no fair pair is left to compare");
    return base::ExitCode::usage;
  }
  return base::ExitCode::good;
}

}  // namespace

void add_compare_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("compare", "records side by side; refuses unfair pairs and says why");
  command->footer("Example: shardmark compare results/*.h5 --format md");
  auto files = std::make_shared<std::vector<std::string>>();
  auto format = std::make_shared<std::string>("table");
  command->add_option("files", *files, "records")->required();
  command->add_option("--format", *format, "table, json, csv or md");
  auto memory = std::make_shared<bool>(false);
  command->add_flag("--memory", *memory, "peak memory by category instead, of the largest rank");
  command->callback(
      [&chosen, files, format, memory] { chosen = [files, format, memory] { return compare(*files, *format, *memory); }; });
}

}  // namespace shardmark::app
