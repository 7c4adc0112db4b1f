#include "config/toml_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "base/text.hpp"
#include "config/print.hpp"

namespace shardmark::config {
namespace {

constexpr std::size_t kLongestValue = 80;  // characters of a value in a message

std::string whole_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return quoted(text->get());
  }
  if (const auto* number = node.as_floating_point()) {
    return float_text(number->get());
  }
  if (const auto* list = node.as_array()) {
    std::vector<std::string> items;
    for (const auto& item : *list) {
      items.push_back(whole_text(item));
    }
    return "[" + base::join(items, ", ") + "]";
  }
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

}  // namespace

std::optional<toml::table> read_toml(const std::string& path, Problems& problems) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {
    problems.push_back(fmt::format("configuration file {} does not exist or is not a file", path));
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    problems.push_back(fmt::format("configuration file {} cannot be read: check its permissions", path));
    return std::nullopt;
  }
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const auto& place = error.source().begin;
    problems.push_back(fmt::format("{}:{}:{}: not TOML: {}", path, place.line, place.column, error.description()));
    return std::nullopt;
  }
}

std::string text_of(const toml::node& node) {
  const std::string all = whole_text(node);
  return all.size() > kLongestValue ? all.substr(0, kLongestValue) + "..." : all;
}

std::string type_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return "a string";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::array: return "a list";
    case toml::node_type::table: return "a section";
    default: return "a date or time";
  }
}

}  // namespace shardmark::config
