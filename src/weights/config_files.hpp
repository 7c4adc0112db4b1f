#pragma once
// The JSON files beside exported weights. Each appears whole or not at all.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shardmark::weights {

/// If FROM/config.json is there, writes TO/config.json: the same entries, but for the one that says how weights are stored
/// (torch_dtype, or dtype), which becomes `dtype`. Throws DataError for what is no JSON object, IoError.
void copy_config(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& dtype);

struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  std::vector<std::string> targets;
  std::string base;  // folder or name of the adapted model; "" = not said
};

/// FOLDER/adapter_config.json in the public library's layout. Throws IoError.
void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config);

}  // namespace shardmark::weights
