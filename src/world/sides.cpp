#include "world/sides.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace shardmark::world {

std::string sides_text(const std::vector<std::string>& texts, const std::vector<int>& ranks) {
  using Side = std::pair<std::string, std::vector<std::string>>;
  std::vector<Side> sides;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto side = std::ranges::find(sides, texts[i], &Side::first);
    if (side == sides.end()) {
      side = sides.insert(sides.end(), {texts[i], {}});
    }
    side->second.push_back(std::to_string(ranks[i]));
  }
  std::vector<std::string> parts;
  for (const auto& [text, names] : sides) {
    parts.push_back((names.size() == 1 ? "rank " : "ranks ") + base::join(names, ", ") + ": " + text);
  }
  return base::join(parts, "; ");
}

}  // namespace shardmark::world
