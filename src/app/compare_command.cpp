// `shardmark compare`: records side by side; refuses unfair pairs and says why.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/compare.hpp"
#include "analysis/transfer.hpp"
#include "app/command.hpp"
#include "base/log.hpp"
#include "record/reader.hpp"

namespace shardmark::app {
namespace {

enum class Question { fair_ratios, memory, transfer };

base::ExitCode print_transfer(const std::vector<record::Record>& records, analysis::Format format) {
  const auto result = analysis::transfer(records);
  fmt::print("{}", analysis::render(result.table, format, result.verdict));
  for (const auto& reason : result.reasons) {
    base::log_info("left out: " + reason);
  }
  if (result.table.rows.empty()) {
    base::log_error(
        "nothing to compare: --transfer needs ddp and one more technique of one preset and number of ranks, trained alike by "
        "shardmark (technique.profile fsdp2 for fsdp, deepspeed for zero1 to zero3) and by peers (make peers PEERS=\"--records "
        "FOLDER\")");
    return base::ExitCode::usage;
  }
  base::log_info("transfer: " + result.verdict);
  return base::ExitCode::good;
}

base::ExitCode compare(const std::vector<std::string>& files, const std::string& format_name, Question question) {
  const auto format = analysis::parse_format(format_name);
  std::vector<record::Record> records;
  std::vector<std::string> problems;
  for (const auto& file : files) {
    try {
      records.push_back(record::read_record(file));
      if (records.back().attributes.workload == "comm") {
        problems.push_back(
            fmt::format("{}: measurements of `shardmark comm` are not compared; `shardmark show {} --table comm` prints "
                        "them, `shardmark export {} --to csv` is for other programs",
                        file, file, file));
      }
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
  if (question == Question::transfer) {
    return print_transfer(records, format);
  }
  if (question == Question::memory) {
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
  auto transfer = std::make_shared<bool>(false);
  command
      ->add_flag("--transfer", *transfer, "whether techniques rank alike in our records and in those of peers (scripts/peers)")
      ->excludes("--memory");
  command->callback([&chosen, files, format, memory, transfer] {
    const Question question = *transfer ? Question::transfer : *memory ? Question::memory : Question::fair_ratios;
    chosen = [files, format, question] { return compare(*files, *format, question); };
  });
}

}  // namespace shardmark::app
