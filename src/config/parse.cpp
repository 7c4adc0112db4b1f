#include "config/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/adapter.hpp"
#include "config/architecture.hpp"
#include "config/assign.hpp"
#include "config/combinations.hpp"
#include "config/keys.hpp"
#include "config/print.hpp"
#include "config/toml_file.hpp"

namespace shardmark::config {
namespace {

/// One source of values: what the record calls it, and the file that messages point into.
struct Layer {
  std::string origin;
  std::string file;

  [[nodiscard]] std::string place(const toml::node& node) const { return fmt::format("{}:{}", file, node.source().begin.line); }
};

std::string trimmed(const std::string& text) {
  constexpr std::string_view kSpaces = " \t\n\r";
  const auto first = text.find_first_not_of(kSpaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

/// What the writer may have meant: a near name, or every key that ends in the name given.
std::string suggestion(const std::string& name) {
  std::vector<std::string> meant;
  std::ranges::copy_if(key_names(), std::back_inserter(meant), [&](const auto& known) { return known.ends_with("." + name); });
  if (const auto near = base::closest_name(name, key_names()); meant.empty() && !near.empty()) {
    meant.push_back(near);
  }
  return meant.empty() ? "; `shardmark list --keys` shows what is accepted"
                       : fmt::format(" (did you mean {}?)", base::join(meant, " or "));
}

bool is_section(const std::string& name) {
  return std::ranges::any_of(keys(), [&](const Key& key) { return key.name.starts_with(name + "."); });
}

/// Applies the layers one over the other and collects what is wrong with any of them.
class Loader {
 public:
  explicit Loader(const LoadRequest& request) : request_(request) {
    for (const auto& key : keys()) {
      set(key, key.default_text, "default");
    }
  }

  RunConfig load() {
    if (request_.preset_or_file.ends_with(".toml")) {
      load_file(request_.preset_or_file);
    } else {
      load_preset(request_.preset_or_file, "");
    }
    for (const auto& assignment : request_.sets) {
      apply_assignment(assignment);
    }
    apply_beside_weights();
    if (request_.technique) {
      set_once("technique.name", *request_.technique, "--technique");
    }
    if (request_.output_path) {
      set_once("output.path", quoted(*request_.output_path), "-o");
    }
    drop_preset_accumulation();
    const auto sound = [&](std::string_view key) { return !faulty_.contains(std::string(key)); };
    if (complete_) {
      std::ranges::move(impossible_combinations(config_, sound), std::back_inserter(problems_));
    }
    if (!problems_.empty()) {
      throw base::ConfigError(std::move(problems_));
    }
    for (const auto& key : keys()) {
      config_.origins.push_back({key.name, value_text(key, config_), origins_.at(key.name)});
    }
    return std::move(config_);
  }

 private:
  void load_file(const std::string& path) {
    const auto table = read(path);
    config_.preset = std::filesystem::path(path).stem().string();
    if (!table) {
      suggest_preset(path);
      return;
    }
    const Layer layer{"file " + path, path};
    if (const auto* base = table->get("preset")) {
      if (base->is_string()) {
        load_preset(base->as_string()->get(), layer.place(*base) + ": ");
      } else {
        problems_.push_back(
            fmt::format("{}: preset is {}; accepted: the name of a preset", layer.place(*base), type_of(*base)));
        complete_ = false;
      }
    }
    apply(*table, layer);
  }

  /// `where` says who asked for it.
  void load_preset(const std::string& name, const std::string& where) {
    const auto known = preset_names(request_.preset_dir);
    if (std::ranges::find(known, name) == known.end()) {
      const auto near = base::closest_name(name, known);
      problems_.push_back(fmt::format("{}no preset \"{}\"{}; accepted: {}, or a path that ends in .toml", where, name,
                                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                                      base::join(known, ", ")));
      complete_ = false;
      return;
    }
    config_.preset = name;
    const Layer layer{"preset " + name, request_.preset_dir + "/" + name + ".toml"};
    const auto table = read(layer.file);
    if (!table) {
      return;
    }
    for (const auto* needed : {"definition_version", "description"}) {
      if (!table->contains(needed)) {
        problems_.push_back(fmt::format("{}: a preset needs {}", layer.file, needed));
      }
    }
    if (const auto* base = table->get("preset")) {
      problems_.push_back(fmt::format("{}: a preset cannot build on another; only a file of yours can", layer.place(*base)));
    }
    apply(*table, layer);
  }

  std::optional<toml::table> read(const std::string& path) {
    auto table = read_toml(path, problems_);
    complete_ = complete_ && table.has_value();
    return table;
  }

  void suggest_preset(const std::string& path) {
    const auto known = preset_names(request_.preset_dir);
    if (!std::filesystem::exists(path) && std::ranges::find(known, config_.preset) != known.end()) {
      problems_.back() += fmt::format(" (the preset is called {0}: `run {0}`)", config_.preset);
    }
  }

  void apply(const toml::table& table, const Layer& layer) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (name == "preset") {
        continue;  // acted on before the layer is applied
      }
      if (name == "description") {
        if (!node.is_string()) {
          problems_.push_back(fmt::format("{}: description is {}; accepted: string", layer.place(node), type_of(node)));
        }
      } else if (name == "definition_version") {
        set_version(node, layer);
      } else if (const auto* section = node.as_table()) {
        apply_section(*section, name, layer);
      } else if (is_section(name)) {
        problems_.push_back(fmt::format("{0}: {1} is {2}; accepted: a section [{1}]", layer.place(node), name, type_of(node)));
      } else if (find_key(name) != nullptr) {
        problems_.push_back(fmt::format("{}: \"{}\" in quotes names no key; write it without quotes", layer.place(node), name));
      } else {
        unknown(name, layer.place(node));
      }
    }
  }

  void apply_section(const toml::table& table, const std::string& section, const Layer& layer) {
    if (table.empty() && !is_section(section)) {
      problems_.push_back(
          fmt::format("{}: unknown section [{}]; `shardmark list --keys` shows what is accepted", layer.place(table), section));
    }
    for (const auto& [name, node] : table) {
      const std::string full = section + "." + std::string(name.str());
      if (const Key* key = find_key(full)) {
        note(*key, assign(*key, node, config_), layer.place(node));
        origins_[full] = layer.origin;
      } else if (const auto* inner = node.as_table()) {
        apply_section(*inner, full, layer);
      } else {
        unknown(full, layer.place(node));
      }
    }
  }

  void set_version(const toml::node& node, const Layer& layer) {
    const auto* version = node.as_integer();
    if (version == nullptr || version->get() < 1) {
      problems_.push_back(fmt::format("{}: definition_version = {} is {}; accepted: whole number from 1", layer.place(node),
                                      text_of(node), version == nullptr ? type_of(node) : "out of range"));
      return;
    }
    config_.definition_version = version->get();
  }

  void unknown(const std::string& name, const std::string& place) {
    problems_.push_back(fmt::format("{}: unknown key {}{}", place, name, suggestion(name)));
  }

  void apply_assignment(const std::string& assignment) {
    const auto equals = assignment.find('=');
    const std::string name = trimmed(assignment.substr(0, equals));
    if (equals == std::string::npos || name.empty()) {
      problems_.push_back(fmt::format("--set {}: accepted: key=value, as in --set optimizer.lr=0.01", assignment));
    } else if (find_key(name) == nullptr) {
      unknown(name, "--set");
    } else {
      set_once(name, trimmed(assignment.substr(equals + 1)), "--set");
    }
  }

  /// The command line is one layer: within it nothing beats the other.
  void set_once(const std::string& name, const std::string& text, const std::string& origin) {
    const auto [earlier, first] = command_line_.try_emplace(name, origin);
    if (!first) {
      problems_.push_back(fmt::format("{}: {} is given twice, by {} before; drop one", origin, name, earlier->second));
    }
    set(*find_key(name), text, origin);
  }

  void set(const Key& key, const std::string& text, const std::string& origin) {
    note(key, assign_text(key, text, config_), origin);
    origins_[key.name] = origin;
  }

  void note(const Key& key, const std::optional<std::string>& problem, const std::string& place) {
    if (problem) {
      problems_.push_back(place + ": " + *problem);
      faulty_.insert(key.name);
    }
  }

  /// What files beside weights say of their tensors beats presets and files of keys; what the command line says against them is
  /// refused.
  void apply_beside_weights() {
    const auto& model = config_.model;
    std::error_code failure;
    if (config_.workload.name != "lm") {
      return;
    }
    if (const std::string path = model.checkpoint + "/config.json";
        !model.checkpoint.empty() && std::filesystem::exists(path, failure)) {
      apply_keys(read_architecture(path, problems_), path);
    }
    if (!model.lora.checkpoint.empty()) {
      const std::string path = model.lora.checkpoint + "/adapter_config.json";
      apply_keys(read_adapter(path, problems_), path);
    }
  }

  void apply_keys(const std::vector<ArchitectureKey>& entries, const std::string& path) {
    for (const auto& [name, value] : entries) {
      const Key& key = *find_key(name);
      const auto given = command_line_.contains(name) ? value_text(key, config_) : "";
      set(key, value, "file " + path);
      if (const auto said = value_text(key, config_); !given.empty() && given != said) {
        problems_.push_back(
            fmt::format("--set {} = {}: {} says {}; leave it out, or name another folder", name, given, path, said));
      }
    }
  }

  /// A preset's own accumulation belongs to its own batch; one that the user gives stays.
  void drop_preset_accumulation() {
    std::string& origin = origins_["data.accumulation"];
    if (config_.data.global_batch > 0 && config_.data.accumulation > 0 && origin.starts_with("preset ")) {
      origin = fmt::format("default (the {} of {} is dropped: data.global_batch is set)", config_.data.accumulation, origin);
      config_.data.accumulation = 0;
    }
  }

  const LoadRequest& request_;
  RunConfig config_;
  Problems problems_;
  bool complete_ = true;  // every file of the request was read
  std::map<std::string, std::string> origins_;
  std::map<std::string, std::string> command_line_;
  std::set<std::string> faulty_;
};

}  // namespace

RunConfig load_config(const LoadRequest& request) {
  return Loader(request).load();
}

void set_value(RunConfig& config, const std::string& key, const std::string& value, const std::string& origin) {
  const Key* known = find_key(key);
  if (known == nullptr) {
    throw base::ConfigError("unknown key " + key);
  }
  if (auto problem = assign_text(*known, value, config)) {
    throw base::ConfigError(std::move(*problem));
  }
  for (auto& entry : config.origins) {
    if (entry.key == key) {
      entry = {key, value_text(*known, config), origin};
    }
  }
}

}  // namespace shardmark::config
