// `shardmark export`: one record in forms that other programs read.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/export.hpp"
#include "analysis/trace_export.hpp"
#include "app/command.hpp"
#include "app/open_record.hpp"
#include "base/log.hpp"
#include "record/schema.hpp"

namespace shardmark::app {
namespace {

namespace fs = std::filesystem;

struct ExportArguments {
  std::string file;
  std::vector<std::string> formats;
  std::string output;
  bool overwrite = false;
};

struct Output {
  std::string format;
  fs::path path;
};

/// Written aside and renamed: `path` is whole or as it was. No record is called as what lies aside: with -o run.h5 a .partial
/// would be that of the run.
void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path aside = path.string() + ".writing";
  errno = 0;
  std::ofstream out(aside, std::ios::binary | std::ios::trunc);
  if (out) {
    write(out);
    out.close();
  }
  std::error_code problem;
  if (out) {
    fs::rename(aside, path, problem);
  }
  if (!out || problem) {
    const std::string reason = problem ? problem.message() : std::strerror(errno);
    fs::remove(aside, problem);
    throw base::IoError(fmt::format("writing {}: {}", path.string(), reason));
  }
}

/// The record's name without .h5 and what follows it, in the record's folder.
std::string stem_of(const fs::path& path) {
  const std::string name = path.filename().string();
  return (path.parent_path() / name.substr(0, name.rfind(".h5"))).string();
}

std::vector<Output> outputs_of(const ExportArguments& arguments) {
  std::vector<Output> outputs;
  for (const auto& format : arguments.formats) {
    if (std::ranges::find(outputs, format, &Output::format) == outputs.end()) {
      const std::string ending = format == "csv" ? "-csv" : format == "json" ? ".json" : ".trace.json";
      outputs.push_back({format, arguments.output.empty() ? stem_of(arguments.file) + ending : arguments.output});
    }
  }
  return outputs;
}

/// Throws ConfigError with every problem that shows before anything is written.
void check(const ExportArguments& arguments, const std::vector<Output>& outputs) {
  std::vector<std::string> problems;
  if (!arguments.output.empty() && outputs.size() > 1) {
    problems.emplace_back("-o names one output: give one format with it, or leave it out");
  }
  for (const auto& [format, path] : outputs) {
    if (format != "csv" && format != "json" && format != "trace") {
      problems.push_back(fmt::format("--to {}: accepted are csv, json, trace", format));
      continue;
    }
    const bool folder = format == "csv";
    const fs::path parent = path.parent_path();
    if (!parent.empty() && !fs::is_directory(parent)) {
      problems.push_back(fmt::format("{}: there is no folder {}", path.string(), parent.string()));
    } else if (fs::exists(path) && fs::is_directory(path) != folder) {
      problems.push_back(
          fmt::format("{} is {}: name another output with -o", path.string(), folder ? "no folder" : "a folder"));
    } else if (fs::exists(path) && !folder && !fs::is_regular_file(path)) {
      // As root, renaming would put a file in the place of a device.
      problems.push_back(fmt::format("{} is no regular file: name another output with -o", path.string()));
    } else if (fs::exists(path) && fs::exists(arguments.file) && fs::equivalent(path, arguments.file)) {
      problems.push_back(fmt::format("{} is the record itself: name another output with -o", path.string()));
    } else if (fs::exists(path) && !arguments.overwrite) {
      problems.push_back(fmt::format("{} exists: name another output with -o, or give --overwrite", path.string()));
    }
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
}

void write_csv_folder(const fs::path& folder, const record::Record& record) {
  std::error_code problem;
  fs::create_directory(folder, problem);
  if (problem) {
    throw base::IoError(fmt::format("making the folder {}: {}", folder.string(), problem.message()));
  }
  write_file(folder / "attributes.csv", [&](std::ostream& out) { analysis::write_attributes_csv(out, record); });
  write_file(folder / "config.toml", [&](std::ostream& out) { out << record.config_toml; });
  for (const auto& table : record::tables()) {
    write_file(folder / (table.name + ".csv"), [&](std::ostream& out) { analysis::write_csv(out, record, table.name); });
  }
}

void write_output(const Output& output, const record::Record& record) {
  if (output.format == "csv") {
    write_csv_folder(output.path, record);
  } else if (output.format == "json") {
    write_file(output.path, [&](std::ostream& out) { analysis::write_json(out, record); });
  } else {
    write_file(output.path, [&](std::ostream& out) { analysis::write_chrome_trace(out, record); });
    for (const auto& warning : analysis::trace_warnings(record)) {
      base::log_warning(fmt::format("{}: {}", record.path, warning));
    }
  }
  base::log_info(fmt::format("{}: {}", output.format, output.path.string()));
}

base::ExitCode export_record(const ExportArguments& arguments) {
  const auto outputs = outputs_of(arguments);
  check(arguments, outputs);
  const auto record = open_record(arguments.file);
  if (std::ranges::find(outputs, "trace", &Output::format) != outputs.end()) {
    analysis::require_trace(record);
  }
  for (const auto& output : outputs) {
    write_output(output, record);
  }
  return base::ExitCode::good;
}

}  // namespace

void add_export_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("export", "one record as CSV files, as JSON, or its trace for ui.perfetto.dev");
  command->footer("Example: shardmark export digits.h5 --to json -o digits.json");
  auto arguments = std::make_shared<ExportArguments>();
  command->add_option("file", arguments->file, "a record, also FILE.h5.partial")->required();
  command
      ->add_option("--to", arguments->formats,
                   "csv: a folder with a file per table; json: one object; trace: Chrome Trace Events of a run with "
                   "output.trace=true; several with commas")
      ->delimiter(',')
      ->required();
  command->add_option("-o,--output", arguments->output, "default: the record's name with -csv, .json or .trace.json");
  command->add_flag("--overwrite", arguments->overwrite, "replace what is there");
  command->callback([&chosen, arguments] { chosen = [arguments] { return export_record(*arguments); }; });
}

}  // namespace shardmark::app
