#pragma once
// The config.json beside exported weights.

#include <filesystem>
#include <string>

namespace shardmark::weights {

/// If FROM/config.json is there, writes TO/config.json: the same entries, but for the one that says how weights are stored
/// (torch_dtype, or dtype), which becomes `dtype`. Whole or not at all. Throws DataError for what is no JSON object, IoError.
void copy_config(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& dtype);

}  // namespace shardmark::weights
