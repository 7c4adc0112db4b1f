#include "config/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace shardmark::config {
namespace {

/// Digits in groups, as TOML accepts them: 1_000_000.
std::string whole_text(double value) {
  std::string text = base::format_count(static_cast<std::int64_t>(value));
  std::ranges::replace(text, ',', '_');
  return text;
}

/// " from 0 to below 1"; nothing on a side without a bound.
std::string range_text(const Range& range, bool whole) {
  const auto bound = [&](double value) { return whole ? whole_text(value) : fmt::format("{:g}", value); };
  std::string text;
  if (std::isfinite(range.low)) {
    text += fmt::format(" {} {}", range.without_low ? "above" : "from", bound(range.low));
  }
  if (std::isfinite(range.high)) {
    text += fmt::format(" to {}{}", range.without_high ? "below " : "", bound(range.high));
  }
  return text;
}

}  // namespace

const Key* find_key(std::string_view name) {
  const auto found = std::ranges::find(keys(), name, &Key::name);
  return found == keys().end() ? nullptr : &*found;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const auto& key : keys()) {
    names.push_back(key.name);
  }
  return names;
}

std::string accepted_text(const Key& key) {
  RunConfig probe;
  const Member member = key.member(probe);
  if (std::holds_alternative<WordOrNumber*>(member)) {
    return base::join(key.accepted, ", ") + ", whole number" + range_text(key.range, true);
  }
  if (!key.accepted.empty()) {
    return base::join(key.accepted, ", ");
  }
  if (std::holds_alternative<std::string*>(member)) {
    return "string";
  }
  if (std::holds_alternative<bool*>(member)) {
    return "true or false";
  }
  const bool wholes = std::holds_alternative<std::vector<std::int64_t>*>(member);
  const bool whole = wholes || std::holds_alternative<std::int64_t*>(member);
  const std::string range = range_text(key.range, whole);
  if (whole) {
    return (wholes ? "whole number or list of such" : "whole number") + range;
  }
  if (std::holds_alternative<double*>(member)) {
    return "number" + range;
  }
  return fmt::format("list of {} numbers{}", key.list_length == 2 ? "two" : std::to_string(key.list_length), range);
}

std::string list_keys() {
  const auto line = [](const std::string& name, const std::string& value, const std::string& accepted, const Key& rest) {
    return fmt::format("{:<30} {:<16} {:<46} {:<5} {}\n", name, value, accepted, rest.unit.empty() ? "-" : rest.unit,
                       rest.help);
  };
  std::string table = line("key", "default", "accepted", {.unit = "unit", .help = "meaning"});
  for (const auto& key : keys()) {
    table += line(key.name, key.default_text, accepted_text(key), key);
  }
  return table;
}

}  // namespace shardmark::config
