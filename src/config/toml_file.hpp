#pragma once
// TOML files and nodes as the loader needs them: read with a readable problem instead of an exception, and described in words.
// Inside of src/config only; knows nothing of keys.

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <vector>

namespace shardmark::config {

/// Every problem found so far, in the order of finding.
using Problems = std::vector<std::string>;

/// The file's table; absent, with one more problem, if it cannot be read or is not TOML (file, line and column are named).
[[nodiscard]] std::optional<toml::table> read_toml(const std::string& path, Problems& problems);

/// The value as it was given, shortened where it is long.
[[nodiscard]] std::string text_of(const toml::node& node);
/// "a string", "a whole number", ...
[[nodiscard]] std::string type_of(const toml::node& node);

}  // namespace shardmark::config
