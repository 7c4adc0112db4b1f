// Where presets lie and what they are called.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/parse.hpp"
#include "config/toml_file.hpp"

namespace shardmark::config {
namespace {

bool is_folder(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::is_directory(path, failure);
}

}  // namespace

std::vector<std::string> preset_names(const std::string& preset_dir) {
  std::vector<std::string> names;
  std::error_code failure;
  auto entry = std::filesystem::directory_iterator(preset_dir, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (entry->path().extension() == ".toml") {
      names.push_back(entry->path().stem().string());
    }
  }
  if (failure) {
    throw base::EnvironmentError(fmt::format("cannot read the presets in {}: {}; set SHARDMARK_PRESETS to workloads/presets",
                                             preset_dir, failure.message()));
  }
  std::ranges::sort(names);
  return names;
}

std::string preset_description(const std::string& preset_dir, const std::string& name) {
  Problems problems;
  const auto table = read_toml(preset_dir + "/" + name + ".toml", problems);
  if (!table) {
    throw base::ConfigError(std::move(problems));
  }
  return (*table)["description"].value_or(std::string());
}

std::string find_preset_dir() {
  if (const auto given = base::environment_variable("SHARDMARK_PRESETS")) {
    if (!is_folder(*given)) {
      throw base::EnvironmentError(
          fmt::format("SHARDMARK_PRESETS = \"{}\" is not a folder: set it to workloads/presets, or unset it", *given));
    }
    return *given;
  }
  std::vector<std::filesystem::path> candidates;
  std::error_code failure;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (!failure) {
    const auto above = program.parent_path().parent_path();
    candidates = {above / "share" / "shardmark" / "presets", above / "workloads" / "presets"};
  }
#ifdef SM_SOURCE_DIR
  candidates.emplace_back(std::filesystem::path(SM_SOURCE_DIR) / "workloads" / "presets");
#endif
  const auto found = std::ranges::find_if(candidates, is_folder);
  if (found == candidates.end()) {
    throw base::EnvironmentError("no folder of presets beside the program: set SHARDMARK_PRESETS to workloads/presets");
  }
  return found->string();
}

}  // namespace shardmark::config
