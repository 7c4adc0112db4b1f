#pragma once
// From presets, files and --set to a RunConfig. Every problem is found before the first is reported.

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace shardmark::config {

struct LoadRequest {
  std::string preset_or_file;     // NAME, or a path that ends in .toml
  std::vector<std::string> sets;  // "key=value", values are TOML; strings may go unquoted
  std::optional<std::string> technique;
  std::optional<std::string> output_path;
  std::string preset_dir;
};

/// Later beats earlier: default, preset, file, --set and its short forms. A file may build on a preset by `preset = "NAME"`.
/// Throws ConfigError with every problem: unknown keys, wrong types, values out of range, impossible combinations.
[[nodiscard]] RunConfig load_config(const LoadRequest& request);

/// Names of the presets in a folder, sorted; their one-line descriptions.
[[nodiscard]] std::vector<std::string> preset_names(const std::string& preset_dir);
[[nodiscard]] std::string preset_description(const std::string& preset_dir, const std::string& name);
/// SHARDMARK_PRESETS, else the folder beside the installed program, else the source tree's. Throws EnvironmentError.
[[nodiscard]] std::string find_preset_dir();

/// Gives one key another value, as --set would, and says where it came from. Combinations are not checked again. Throws
/// ConfigError for an unknown key or a value that is not accepted.
void set_value(RunConfig& config, const std::string& key, const std::string& value, const std::string& origin);

}  // namespace shardmark::config
