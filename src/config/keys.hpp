#pragma once
// The table of keys: name, type, default, accepted values and help of everything a configuration may say. Parsing, printing,
// `list --keys` and the configuration hash all read this one table.

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/run_config.hpp"

namespace shardmark::config {

/// A reference to the member that a key fills; the alternative is the key's type.
using Member = std::variant<std::string*, bool*, std::int64_t*, double*, std::vector<double>*>;

struct Key {
  std::string name;                   // "data.global_batch"
  std::string default_text;           // as TOML
  std::vector<std::string> accepted;  // of an enumeration; empty otherwise
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool hashed = true;  // false: says where results go or how long to wait, not what is computed
  std::string help;
  std::function<Member(RunConfig&)> member;
};

[[nodiscard]] std::span<const Key> keys();
/// nullptr if there is no such key.
[[nodiscard]] const Key* find_key(std::string_view name);
[[nodiscard]] std::vector<std::string> key_names();
/// "string", "true or false", "whole number", "number", "list of numbers", or the accepted values.
[[nodiscard]] std::string accepted_text(const Key& key);
/// The table as text, one key a line.
[[nodiscard]] std::string list_keys();

}  // namespace shardmark::config
