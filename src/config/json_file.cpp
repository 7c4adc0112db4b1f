#include "config/json_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace shardmark::config {

std::optional<nlohmann::json> read_json_object(const std::string& path, Problems& problems) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    problems.push_back(fmt::format("{} cannot be read: is it there, and may you read it?", path));
    return std::nullopt;
  }
  auto entries = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_object()) {
    problems.push_back(fmt::format("{}: no JSON object", path));
    return std::nullopt;
  }
  return entries;
}

}  // namespace shardmark::config
