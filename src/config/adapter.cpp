#include "config/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.hpp"
#include "config/json_file.hpp"
#include "config/print.hpp"

namespace shardmark::config {
namespace {

using nlohmann::json;

/// Entries that say nothing of what is computed while the others have the values that are built.
constexpr std::array<std::string_view, 10> kInert{"auto_mapping",      "base_model_name_or_path",
                                                  "inference_mode",    "init_lora_weights",
                                                  "loftq_config",      "megatron_core",
                                                  "peft_version",      "revision",
                                                  "qalora_group_size", "task_type"};
/// Read below.
constexpr std::array<std::string_view, 5> kRead{"peft_type", "r", "lora_alpha", "lora_dropout", "target_modules"};

/// Whether an entry that this program does not read is switched off: every switch of the public library is off as null, false,
/// an empty list or object, or "none".
bool is_off(const json& value) {
  return value.is_null() || value == false || value == "none" || ((value.is_object() || value.is_array()) && value.empty());
}

/// "q_proj,v_proj" of a list of names; empty if it is none. The public library also takes a pattern, or "all-linear", as text.
std::string targets_of(const json& value) {
  if (value == "all-linear") {
    return value.get<std::string>();
  }
  std::vector<std::string> names;
  for (const auto& name : value) {
    const auto text = name.is_string() ? name.get<std::string>() : std::string();
    if (text.empty() || text.find_first_of(",.*^$ ") != std::string::npos) {
      return {};
    }
    names.push_back(text);
  }
  std::ranges::sort(names);
  return value.is_array() ? base::join(names, ",") : std::string();
}

}  // namespace

std::vector<ArchitectureKey> read_adapter(const std::string& path, Problems& problems) {
  const auto entries = read_json_object(path, problems);
  if (!entries) {
    return {};
  }
  const auto before = problems.size();
  const auto at = [&](std::string_view name) { return entries->contains(name) ? entries->at(std::string(name)) : json(); };
  const auto require = [&](bool good, std::string_view name, std::string_view needed) {
    if (!good) {
      problems.push_back(fmt::format("{}: {} = {}: {}", path, name, at(name).dump(), needed));
    }
  };
  const json rank = at("r");
  const json alpha = at("lora_alpha");
  const json dropout = at("lora_dropout");
  const std::string targets = targets_of(at("target_modules"));
  require(at("peft_type") == "LORA", "peft_type", "adapters of type \"LORA\" are built");
  require(rank.is_number_integer() && rank >= 1, "r", "a whole number from 1 is needed");
  require(alpha.is_number(), "lora_alpha", "a number is needed");
  require(dropout.is_number() || dropout.is_null(), "lora_dropout", "a number is needed");
  require(!targets.empty(), "target_modules",
          "names of projections are needed, as [\"q_proj\", \"v_proj\"], or \"all-linear\"");
  for (const auto& [name, value] : entries->items()) {
    const auto is = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
    require(is(kInert) || is(kRead) || is_off(value), name, "not built here; it must be off");
  }
  if (problems.size() != before) {
    return {};
  }
  return {{"model.lora.rank", rank.dump()},
          {"model.lora.alpha", float_text(alpha.get<double>())},
          {"model.lora.dropout", float_text(dropout.is_null() ? 0.0 : dropout.get<double>())},
          {"model.lora.targets", quoted(targets)}};
}

}  // namespace shardmark::config
