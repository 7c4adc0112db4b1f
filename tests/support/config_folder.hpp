#pragma once
// Configurations loaded from a folder of presets and files that the test writes itself, or from the project's presets.

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/parse.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::testing {

inline const std::string kProjectPresets = std::string(SM_TEST_SOURCE_DIR) + "/workloads/presets";

/// The problems of a configuration that must be refused; empty if it was accepted.
[[nodiscard]] inline std::vector<std::string> problems_of(const config::LoadRequest& request) {
  try {
    static_cast<void>(config::load_config(request));
    return {};
  } catch (const base::ConfigError& error) {
    return error.problems();
  }
}

/// One of the project's presets with some keys set on top.
[[nodiscard]] inline config::LoadRequest preset_request(std::vector<std::string> sets, const std::string& preset = "mlp") {
  config::LoadRequest request;
  request.preset_or_file = preset;
  request.sets = std::move(sets);
  request.preset_dir = kProjectPresets;
  return request;
}

[[nodiscard]] inline config::RunConfig load_preset(std::vector<std::string> sets, const std::string& preset = "mlp") {
  return config::load_config(preset_request(std::move(sets), preset));
}

[[nodiscard]] inline std::vector<std::string> problems_of_sets(std::vector<std::string> sets) {
  return problems_of(preset_request(std::move(sets)));
}

/// Where the effective value of a key came from; "" if there is no such key.
[[nodiscard]] inline std::string origin_of(const config::RunConfig& config, const std::string& key) {
  for (const auto& origin : config.origins) {
    if (origin.key == key) {
      return origin.origin;
    }
  }
  return "";
}

/// A folder of its own with a preset "base" and a user's file "case.toml".
class ConfigFolder {
 public:
  void write_preset(const std::string& text, const std::string& name = "base") {
    write_file(presets_.file(name + ".toml"), text);
  }
  void write_case(const std::string& text) { write_file(case_file(), text); }

  [[nodiscard]] std::string case_file() const { return folder_.file("case.toml"); }
  [[nodiscard]] std::string preset_file(const std::string& name = "base") const { return presets_.file(name + ".toml"); }
  [[nodiscard]] config::LoadRequest request(const std::string& preset_or_file, std::vector<std::string> sets = {}) const {
    config::LoadRequest request;
    request.preset_or_file = preset_or_file;
    request.sets = std::move(sets);
    request.preset_dir = presets_.path().string();
    return request;
  }
  [[nodiscard]] config::LoadRequest case_request(std::vector<std::string> sets = {}) const {
    return request(case_file(), std::move(sets));
  }

 private:
  TemporaryFolder folder_;
  TemporaryFolder presets_;
};

}  // namespace shardmark::testing
