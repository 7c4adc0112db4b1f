#pragma once
// The table of keys: name, type, default, accepted values, unit and help of everything a configuration may say. Parsing,
// printing, `list --keys` and the configuration hash all read this one table.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/run_config.hpp"

namespace shardmark::config {

/// A reference to the member that a key fills; the alternative is the key's type. Lists of numbers hold `list_length` of them,
/// lists of whole numbers one or more: of one, the number alone will do.
using Member =
    std::variant<std::string*, bool*, std::int64_t*, double*, std::vector<double>*, std::vector<std::int64_t>*, WordOrNumber*>;

/// Where a number may lie.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool without_low = false;
  bool without_high = false;

  /// False for NaN.
  [[nodiscard]] constexpr bool contains(double value) const noexcept {
    return (without_low ? value > low : value >= low) && (without_high ? value < high : value <= high);
  }
};

struct Key {
  std::string name = {};                   // "data.global_batch"
  std::string default_text = "\"\"";       // as TOML
  std::vector<std::string> accepted = {};  // of an enumeration, the default first; empty otherwise
  Range range = {};                        // of numbers
  std::string unit = {};                   // "" for texts, switches and pure numbers
  std::string help = {};
  std::size_t list_length = 2;  // of a list
  bool hashed = true;           // false: says where results go or how long to wait, not what is computed
  Member (*member)(RunConfig&) = nullptr;
};

/// Every key that this program understands, in the order of printing.
[[nodiscard]] std::span<const Key> keys();
/// nullptr if there is no such key.
[[nodiscard]] const Key* find_key(std::string_view name);
[[nodiscard]] std::vector<std::string> key_names();
/// "string", "true or false", "number above 0 to 1", "list of two numbers from 0 to below 1", or the accepted values.
[[nodiscard]] std::string accepted_text(const Key& key);
/// The table as text, one key a line under a line of titles.
[[nodiscard]] std::string list_keys();

}  // namespace shardmark::config
