#include "config/parse.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/keys.hpp"
#include "config/print.hpp"

namespace shardmark::config {
namespace {

using Problems = std::vector<std::string>;

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

std::string type_of(const toml::node& node) {
  if (node.is_string()) {
    return "a string";
  }
  if (node.is_boolean()) {
    return "true or false";
  }
  if (node.is_integer()) {
    return "a whole number";
  }
  if (node.is_floating_point()) {
    return "a number";
  }
  return node.is_array() ? "a list" : node.is_table() ? "a section" : "a date or time";
}

class Loader {
 public:
  explicit Loader(const LoadRequest& request) : request_(request) {
    for (const auto& key : keys()) {
      set_value(key, *toml::parse("v = " + key.default_text)["v"].node(), "default");
    }
  }

  RunConfig load() {
    const bool is_file = request_.preset_or_file.ends_with(".toml");
    if (is_file) {
      const auto table = parse_file(request_.preset_or_file);
      if (const auto base = table["preset"].value<std::string>()) {
        load_preset(*base);
      }
      if (config_.preset.empty()) {
        config_.preset = std::filesystem::path(request_.preset_or_file).stem().string();
      }
      apply(table, "file " + request_.preset_or_file, "file " + request_.preset_or_file);
    } else {
      load_preset(request_.preset_or_file);
    }
    for (const auto& assignment : request_.sets) {
      apply_assignment(assignment);
    }
    if (request_.technique) {
      set_text("technique.name", *request_.technique, "--technique");
    }
    if (request_.output_path) {
      set_text("output.path", *request_.output_path, "-o");
    }
    drop_preset_accumulation();
    check_combinations();
    if (!problems_.empty()) {
      throw base::ConfigError(std::move(problems_));
    }
    for (const auto& key : keys()) {
      config_.origins.push_back({key.name, value_text(key, config_), origins_.at(key.name)});
    }
    return std::move(config_);
  }

 private:
  static toml::table parse_file(const std::string& path) {
    if (!std::filesystem::is_regular_file(path)) {
      throw base::ConfigError(fmt::format("configuration file {} does not exist or is not a file", path));
    }
    try {
      return toml::parse_file(path);
    } catch (const toml::parse_error& error) {
      throw base::ConfigError(fmt::format("{}:{}:{}: {}", path, error.source().begin.line, error.source().begin.column, error.description()));
    }
  }

  void load_preset(const std::string& name) {
    const auto known = preset_names(request_.preset_dir);
    if (std::ranges::find(known, name) == known.end()) {
      const auto near = base::closest_name(name, known);
      throw base::ConfigError(fmt::format("no preset \"{}\"{}; accepted are {} or a path that ends in .toml", name,
                                          near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), base::join(known, ", ")));
    }
    config_.preset = name;
    apply(parse_file(request_.preset_dir + "/" + name + ".toml"), "preset " + name, "preset " + name);
  }

  void apply(const toml::table& table, const std::string& origin, const std::string& where) {
    for (const auto& [name, node] : table) {
      const std::string section(name.str());
      if (section == "preset" || section == "description") {
        if (!node.is_string()) {
          problems_.push_back(fmt::format("{}: {} is {}; accepted is a string", where, section, type_of(node)));
        }
      } else if (section == "definition_version") {
        config_.definition_version = node.value_or(std::int64_t{1});
      } else if (node.is_table()) {
        apply_section(*node.as_table(), section, origin, where);
      } else {
        unknown(section, where);
      }
    }
  }

  void apply_section(const toml::table& table, const std::string& prefix, const std::string& origin, const std::string& where) {
    for (const auto& [name, node] : table) {
      const std::string full = prefix + "." + std::string(name.str());
      if (const Key* key = find_key(full)) {
        set_value(*key, node, origin);
      } else if (node.is_table()) {
        apply_section(*node.as_table(), full, origin, where);
      } else {
        unknown(full, where);
      }
    }
  }

  void unknown(const std::string& name, const std::string& where) {
    const auto near = base::closest_name(name, key_names());
    problems_.push_back(fmt::format("{}: unknown key {}{}", where, name,
                                    near.empty() ? "; `shardmark list --keys` shows what is accepted" : fmt::format(" (did you mean {}?)", near)));
  }

  void apply_assignment(const std::string& assignment) {
    const auto equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems_.push_back(fmt::format("--set {}: expected key=value", assignment));
      return;
    }
    const std::string name = assignment.substr(0, equals);
    const Key* key = find_key(name);
    if (key == nullptr) {
      unknown(name, "--set");
      return;
    }
    if (!assigned_.insert(name).second) {
      problems_.push_back(fmt::format("--set {}: given twice", name));
    }
    set_text(name, assignment.substr(equals + 1), "--set");
  }

  /// The text as TOML, or as an unquoted string where the key is one.
  void set_text(const std::string& name, const std::string& text, const std::string& origin) {
    const Key& key = *find_key(name);
    const bool wants_text = std::holds_alternative<std::string*>(key.member(config_));
    try {
      const auto table = toml::parse("v = " + text);
      if (table.size() == 1 && (!wants_text || table["v"].is_string())) {
        set_value(key, *table["v"].node(), origin);
        return;
      }
    } catch (const toml::parse_error& error) {
      if (!wants_text) {
        problems_.push_back(fmt::format("{} {} = {}: {}; accepted: {}", origin, name, text, error.description(), accepted_text(key)));
        return;
      }
    }
    set_value(key, toml::value<std::string>(text), origin);
  }

  void set_value(const Key& key, const toml::node& node, const std::string& origin) {
    origins_[key.name] = origin;
    const auto wrong = [&] {
      problems_.push_back(fmt::format("{}: {} = {} is {}; accepted: {}", origin, key.name, text_of(node), type_of(node), accepted_text(key)));
    };
    const auto in_range = [&](double value) {
      if (!(value >= key.low && value <= key.high)) {
        problems_.push_back(fmt::format("{}: {} = {} is out of range; accepted: {}", origin, key.name, text_of(node), accepted_text(key)));
      }
      return value;
    };
    const Member member = key.member(config_);
    if (auto* const* text = std::get_if<std::string*>(&member)) {
      if (!node.is_string()) {
        return wrong();
      }
      **text = *node.value<std::string>();
      if (!key.accepted.empty() && std::ranges::find(key.accepted, **text) == key.accepted.end()) {
        problems_.push_back(fmt::format("{}: {} = \"{}\"; accepted: {}", origin, key.name, **text, accepted_text(key)));
      }
    } else if (auto* const* flag = std::get_if<bool*>(&member)) {
      node.is_boolean() ? void(**flag = *node.value<bool>()) : wrong();
    } else if (auto* const* whole = std::get_if<std::int64_t*>(&member)) {
      node.is_integer() ? void(in_range(static_cast<double>(**whole = *node.value<std::int64_t>()))) : wrong();
    } else if (auto* const* number = std::get_if<double*>(&member)) {
      node.is_number() ? void(**number = in_range(*node.value<double>())) : wrong();
    } else {
      set_list(*std::get<std::vector<double>*>(member), node, wrong, in_range);
    }
  }

  template <typename Wrong, typename InRange>
  static void set_list(std::vector<double>& list, const toml::node& node, const Wrong& wrong, const InRange& in_range) {
    const auto* array = node.as_array();
    if (array == nullptr || array->size() != 2 || !std::ranges::all_of(*array, [](const auto& item) { return item.is_number(); })) {
      return wrong();
    }
    list.clear();
    for (const auto& item : *array) {
      list.push_back(in_range(*item.template value<double>()));
    }
  }

  /// Design: with data.global_batch set, a preset's own accumulation is dropped; one given by the user stays.
  void drop_preset_accumulation() {
    if (config_.data.global_batch > 0 && origins_["data.accumulation"].starts_with("preset")) {
      config_.data.accumulation = 0;
      origins_["data.accumulation"] = "dropped: data.global_batch is set";
    }
  }

  void check_combinations() {
    const auto& schedule = config_.schedule;
    if (schedule.total_steps > 0 && schedule.warmup_steps > schedule.total_steps) {
      problems_.push_back(fmt::format("schedule.warmup_steps = {} exceeds schedule.total_steps = {}", schedule.warmup_steps, schedule.total_steps));
    }
    if (schedule.name == "step" && schedule.step_every == 0) {
      problems_.push_back("schedule.name = \"step\" needs schedule.step_every of at least 1");
    }
    if (config_.optimizer.lr <= 0) {
      problems_.push_back(fmt::format("optimizer.lr = {}: accepted: a number above 0", config_.optimizer.lr));
    }
    if (config_.workload.name.empty()) {
      problems_.push_back("workload.name is missing: name a workload, or start from a preset (preset = \"mlp\")");
    }
  }

  const LoadRequest& request_;
  RunConfig config_;
  Problems problems_;
  std::map<std::string, std::string> origins_;
  std::set<std::string> assigned_;
};

}  // namespace

RunConfig load_config(const LoadRequest& request) { return Loader(request).load(); }

std::vector<std::string> preset_names(const std::string& preset_dir) {
  std::vector<std::string> names;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(preset_dir, failure)) {
    if (entry.path().extension() == ".toml") {
      names.push_back(entry.path().stem().string());
    }
  }
  if (failure) {
    throw base::EnvironmentError(fmt::format("cannot read the presets in {}: {}; set SHARDMARK_PRESETS", preset_dir, failure.message()));
  }
  std::ranges::sort(names);
  return names;
}

std::string preset_description(const std::string& preset_dir, const std::string& name) {
  return toml::parse_file(preset_dir + "/" + name + ".toml")["description"].value_or(std::string());
}

std::string find_preset_dir() {
  if (const auto given = base::environment_variable("SHARDMARK_PRESETS")) {
    return *given;
  }
  std::error_code failure;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failure);
  std::vector<std::filesystem::path> candidates{program.parent_path() / ".." / "share" / "shardmark" / "presets",
                                                program.parent_path() / ".." / "workloads" / "presets"};
#ifdef SM_SOURCE_DIR
  candidates.emplace_back(std::filesystem::path(SM_SOURCE_DIR) / "workloads" / "presets");
#endif
  for (const auto& candidate : candidates) {
    if (std::filesystem::is_directory(candidate)) {
      return std::filesystem::weakly_canonical(candidate).string();
    }
  }
  throw base::EnvironmentError("no folder of presets beside the program: set SHARDMARK_PRESETS to workloads/presets");
}

}  // namespace shardmark::config
