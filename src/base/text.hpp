#pragma once
// Small helpers on texts shared by tables and messages.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::base {

/// "1.50 GiB", "12.0 KiB", "7 B": 1024-based.
[[nodiscard]] std::string format_bytes(double bytes);
/// 1234567 -> "1,234,567".
[[nodiscard]] std::string format_count(std::int64_t count);
/// Joins with a separator.
[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// The known name closest to `name` by edit distance, or "" if none is near: for "did you mean".
[[nodiscard]] std::string closest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace shardmark::base
