#pragma once
// JSON files beside checkpoints. Inside of src/config only.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/toml_file.hpp"

namespace shardmark::config {

/// The file's object; otherwise a problem that names it.
[[nodiscard]] std::optional<nlohmann::json> read_json_object(const std::string& path, Problems& problems);

}  // namespace shardmark::config
