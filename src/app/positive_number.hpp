#pragma once
// Options that are numbers above 0: the one place that reads them.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace shardmark::app {

/// Absent unless the whole text is a finite number above 0.
[[nodiscard]] inline std::optional<double> positive_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

/// A check for CLI11: what is wrong with an option's text, or "".
[[nodiscard]] inline std::function<std::string(const std::string&)> check_positive(const std::string& unit) {
  return [unit](const std::string& text) {
    return positive_number(text) ? std::string() : "a number of " + unit + " above 0 is needed, not \"" + text + "\"";
  };
}

}  // namespace shardmark::app
