#pragma once
// A RunConfig as text: for --print-config, the record and the configuration hash.

#include <cstdint>
#include <string>

#include "config/keys.hpp"
#include "config/run_config.hpp"

namespace shardmark::config {

/// A basic TOML string with everything escaped that needs it.
[[nodiscard]] std::string quoted(const std::string& text);
/// Shortest text that reads back to the same double, always recognisable as a float.
[[nodiscard]] std::string float_text(double value);
/// One key's value as TOML.
[[nodiscard]] std::string value_text(const Key& key, const RunConfig& config);
/// All effective values in table order; parses back to the same configuration.
[[nodiscard]] std::string to_toml(const RunConfig& config);
/// The same with a comment on each line that says where the value came from.
[[nodiscard]] std::string to_toml_with_origins(const RunConfig& config);
/// Equal configurations have equal hashes, whatever they are called; keys that only say where results go or how long to wait
/// do not count.
[[nodiscard]] std::uint64_t config_hash(const RunConfig& config);

}  // namespace shardmark::config
