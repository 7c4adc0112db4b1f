#pragma once
// A language model's config.json, as the public checkpoints carry it: its numbers become keys of section [model].

#include <string>
#include <vector>

#include "config/toml_file.hpp"

namespace shardmark::config {

struct ArchitectureKey {
  std::string name;   // "model.hidden_size"
  std::string value;  // as TOML
};

/// What the file says, absent entries by the public implementation's defaults. Both spellings of the rotary entries are read:
/// rope_theta with rope_scaling, and rope_parameters. An entry that changes the model and is not built here, or that is not
/// known, is a problem, never ignored; then, or if the file cannot be read, the result is empty.
[[nodiscard]] std::vector<ArchitectureKey> read_architecture(const std::string& path, Problems& problems);

}  // namespace shardmark::config
