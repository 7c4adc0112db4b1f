#pragma once
// Puts one TOML value into the member that a key names, if type and range are right. Inside of src/config only.

#include <optional>
#include <string>

#include "config/keys.hpp"
#include "config/toml_file.hpp"

namespace shardmark::config {

/// Sets the key's member. Otherwise leaves it as it was and says what was given and what is accepted.
[[nodiscard]] std::optional<std::string> assign(const Key& key, const toml::node& node, RunConfig& config);

/// As `assign`, from a text: TOML, or for a key of type string the text itself.
[[nodiscard]] std::optional<std::string> assign_text(const Key& key, const std::string& text, RunConfig& config);

}  // namespace shardmark::config
