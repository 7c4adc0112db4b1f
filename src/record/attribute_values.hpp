#pragma once
// Root attributes of a record by name, for those who list them all.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "record/rows.hpp"

namespace shardmark::record {

using AttributeValue = std::variant<std::string, std::int64_t>;

/// In the order of schema.hpp's attributes().
[[nodiscard]] std::vector<std::pair<std::string, AttributeValue>> attribute_values(const RunAttributes& attributes);

}  // namespace shardmark::record
