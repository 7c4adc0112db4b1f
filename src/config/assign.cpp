#include "config/assign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "config/print.hpp"

namespace shardmark::config {
namespace {

std::string refusal(const Key& key, const std::string& given) {
  return fmt::format("{} = {}; accepted: {}", key.name, given, accepted_text(key));
}
std::string wrong_type(const Key& key, const toml::node& node) {
  // A section prints as many lines: its type says enough.
  return node.is_table() ? refusal(key, "{...} is a section")
                         : refusal(key, fmt::format("{} is {}", text_of(node), type_of(node)));
}
std::string out_of_range(const Key& key, const toml::node& node) {
  return refusal(key, text_of(node) + " is out of range");
}

/// Whole numbers are numbers too; beyond 2^53 they are rounded, which no range of ours reaches.
double as_number(const toml::node& node) {
  const auto* whole = node.as_integer();
  // Adding zero turns -0.0 into 0.0, so that equal configurations have equal texts.
  return whole != nullptr ? static_cast<double>(whole->get()) : node.as_floating_point()->get() + 0.0;
}

using Problem = std::optional<std::string>;

Problem assign_to(std::string& member, const Key& key, const toml::node& node) {
  const auto* text = node.as_string();
  if (text == nullptr) {
    return wrong_type(key, node);
  }
  if (!key.accepted.empty() && std::ranges::find(key.accepted, text->get()) == key.accepted.end()) {
    return refusal(key, text_of(node));
  }
  if (text->get().find('\0') != std::string::npos) {
    return refusal(key, text_of(node) + " holds a zero byte, which no path or name can");
  }
  member = text->get();
  return std::nullopt;
}

Problem assign_to(bool& member, const Key& key, const toml::node& node) {
  if (!node.is_boolean()) {
    return wrong_type(key, node);
  }
  member = node.as_boolean()->get();
  return std::nullopt;
}

Problem assign_to(std::int64_t& member, const Key& key, const toml::node& node) {
  if (!node.is_integer()) {
    return wrong_type(key, node);
  }
  const std::int64_t value = node.as_integer()->get();
  if (!key.range.contains(static_cast<double>(value))) {
    return out_of_range(key, node);
  }
  member = value;
  return std::nullopt;
}

Problem assign_to(double& member, const Key& key, const toml::node& node) {
  if (!node.is_number()) {
    return wrong_type(key, node);
  }
  const double value = as_number(node);
  if (!key.range.contains(value)) {
    return out_of_range(key, node);
  }
  member = value;
  return std::nullopt;
}

Problem assign_to(std::vector<double>& member, const Key& key, const toml::node& node) {
  const auto* list = node.as_array();
  if (list == nullptr) {
    return wrong_type(key, node);
  }
  if (list->size() != key.list_length) {
    return refusal(key, fmt::format("{} has {} value(s)", text_of(node), list->size()));
  }
  std::vector<double> values;
  for (const auto& item : *list) {
    if (!item.is_number()) {
      return refusal(key, fmt::format("{} holds {}", text_of(node), type_of(item)));
    }
    values.push_back(as_number(item));
    if (!key.range.contains(values.back())) {
      return out_of_range(key, node);
    }
  }
  member = std::move(values);
  return std::nullopt;
}

Problem assign_to(std::vector<std::int64_t>& member, const Key& key, const toml::node& node) {
  std::vector<std::int64_t> values;
  const auto add = [&](const toml::node& item) -> Problem {
    if (!item.is_integer()) {
      return &item == &node ? wrong_type(key, node) : refusal(key, fmt::format("{} holds {}", text_of(node), type_of(item)));
    }
    values.push_back(item.as_integer()->get());
    return key.range.contains(static_cast<double>(values.back())) ? std::nullopt : Problem(out_of_range(key, node));
  };
  const auto* list = node.as_array();
  if (list == nullptr) {
    if (auto problem = add(node)) {
      return problem;
    }
  } else if (list->empty()) {
    return refusal(key, "[] has no value");
  } else {
    for (const auto& item : *list) {
      if (auto problem = add(item)) {
        return problem;
      }
    }
  }
  member = std::move(values);
  return std::nullopt;
}

Problem assign_to(WordOrNumber& member, const Key& key, const toml::node& node) {
  if (const auto* whole = node.as_integer()) {
    if (!key.range.contains(static_cast<double>(whole->get()))) {
      return out_of_range(key, node);
    }
    member = {"", whole->get()};
    return std::nullopt;
  }
  std::string word;
  if (const auto* flag = node.as_boolean()) {
    word = flag->get() ? "true" : "false";
  } else if (const auto* text = node.as_string()) {
    word = text->get();
  } else {
    return wrong_type(key, node);
  }
  if (std::ranges::find(key.accepted, word) == key.accepted.end()) {
    return refusal(key, text_of(node));
  }
  member = {word, 0};
  return std::nullopt;
}

/// The text as a TOML string; absent if it is not UTF-8.
std::optional<toml::table> as_text_table(const std::string& text) {
  try {
    return toml::parse("value = " + quoted(text));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> assign(const Key& key, const toml::node& node, RunConfig& config) {
  return std::visit([&](auto* member) { return assign_to(*member, key, node); }, key.member(config));
}

std::optional<std::string> assign_text(const Key& key, const std::string& text, RunConfig& config) {
  const bool wants_text = std::holds_alternative<std::string*>(key.member(config));
  // A quote says TOML, and so does anything that could not be a word where no text is wanted.
  const bool word = text.empty() || std::isalpha(static_cast<unsigned char>(text.front())) != 0;
  const bool quotes = text.starts_with('"') || text.starts_with('\'');
  try {
    const auto table = toml::parse("value = " + text);
    if (table.size() == 1 && (!wants_text || table["value"].is_string())) {
      return assign(key, *table["value"].node(), config);
    }
  } catch (const toml::parse_error& error) {
    if (quotes || !(wants_text || word)) {
      return refusal(key, fmt::format("{} is not TOML ({})", text, error.description()));
    }
  }
  const auto table = as_text_table(text);
  if (!table) {
    return refusal(key, "... is not UTF-8");
  }
  return assign(key, *(*table)["value"].node(), config);
}

}  // namespace shardmark::config
