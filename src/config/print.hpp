#pragma once
// A RunConfig as text: for --print-config, the record and the configuration hash.

#include <cstdint>
#include <string>

#include "config/keys.hpp"
#include "config/run_config.hpp"

namespace shardmark::config {

/// One key's value as TOML.
[[nodiscard]] std::string value_text(const Key& key, const RunConfig& config);
/// All effective values in table order; parses back to the same configuration.
[[nodiscard]] std::string to_toml(const RunConfig& config);
/// The same with a comment on each line that says where the value came from.
[[nodiscard]] std::string to_toml_with_origins(const RunConfig& config);
/// Equal configurations have equal hashes; keys that only say where results go or how long to wait do not count.
[[nodiscard]] std::uint64_t config_hash(const RunConfig& config);

}  // namespace shardmark::config
