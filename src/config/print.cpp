#include "config/print.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "base/random.hpp"
#include "base/text.hpp"

namespace shardmark::config {
namespace {

/// A comment ends with its line, and a path may hold anything.
std::string comment_text(std::string text) {
  for (char& character : text) {
    const auto code = static_cast<unsigned char>(character);
    if (code < 0x20 || code == 0x7f) {
      character = '?';
    }
  }
  return text;
}

template <typename Line>
std::string render(const RunConfig& config, const Line& line) {
  std::string text =
      fmt::format("# preset {}\ndefinition_version = {}\n", comment_text(config.preset), config.definition_version);
  std::string section;
  std::size_t index = 0;
  for (const auto& key : keys()) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    text += line(key.name.substr(dot + 1), value_text(key, config), index++);
  }
  return text;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char character : text) {
    const auto code = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      out += '\\';
      out += character;
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += character;
    }
  }
  return out + "\"";
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string value_text(const Key& key, const RunConfig& config) {
  RunConfig copy = config;
  return std::visit(
      [](auto* member) -> std::string {
        using Type = std::remove_pointer_t<decltype(member)>;
        if constexpr (std::is_same_v<Type, std::string>) {
          return quoted(*member);
        } else if constexpr (std::is_same_v<Type, bool>) {
          return *member ? "true" : "false";
        } else if constexpr (std::is_same_v<Type, std::int64_t>) {
          return std::to_string(*member);
        } else if constexpr (std::is_same_v<Type, WordOrNumber>) {
          const bool is_switch = member->word == "true" || member->word == "false";
          return member->word.empty() ? std::to_string(member->number) : is_switch ? member->word : quoted(member->word);
        } else if constexpr (std::is_same_v<Type, double>) {
          return float_text(*member);
        } else if constexpr (std::is_same_v<Type, std::vector<std::int64_t>>) {
          return member->size() == 1 ? std::to_string(member->front()) : fmt::format("[{}]", fmt::join(*member, ", "));
        } else {
          std::vector<std::string> items;
          for (const double item : *member) {
            items.push_back(float_text(item));
          }
          return "[" + base::join(items, ", ") + "]";
        }
      },
      key.member(copy));
}

std::string to_toml(const RunConfig& config) {
  return render(config, [](const std::string& name, const std::string& value, std::size_t) {
    return fmt::format("{} = {}\n", name, value);
  });
}

std::string to_toml_with_origins(const RunConfig& config) {
  return render(config, [&](const std::string& name, const std::string& value, std::size_t index) {
    return fmt::format("{:<40} # {}\n", fmt::format("{} = {}", name, value), comment_text(config.origins.at(index).origin));
  });
}

std::uint64_t config_hash(const RunConfig& config) {
  std::uint64_t hash = base::hash_text(fmt::format("definition_version={}\n", config.definition_version));
  for (const auto& key : keys()) {
    if (key.hashed) {
      hash = base::hash_text(key.name + "=" + value_text(key, config) + "\n", hash);
    }
  }
  return hash;
}

}  // namespace shardmark::config
