#pragma once
// Who says what: texts of several ranks for a message, equal ones named once.

#include <string>
#include <vector>

namespace shardmark::world {

/// "ranks 0, 1, 3: A; rank 2: B", in order of each text's first rank. `texts[i]` is what world rank `ranks[i]` says.
[[nodiscard]] std::string sides_text(const std::vector<std::string>& texts, const std::vector<int>& ranks);

}  // namespace shardmark::world
