#include "config/architecture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "config/json_file.hpp"
#include "config/print.hpp"

namespace shardmark::config {
namespace {

using nlohmann::json;

/// Entries that say nothing of what is computed: token ids, how files were written, how text is generated.
constexpr std::array<std::string_view, 34> kInert{"_name_or_path",
                                                  "architectures",
                                                  "bos_token_id",
                                                  "eos_token_id",
                                                  "pad_token_id",
                                                  "torch_dtype",
                                                  "dtype",
                                                  "transformers_version",
                                                  "use_cache",
                                                  "initializer_range",
                                                  "return_dict",
                                                  "output_attentions",
                                                  "output_hidden_states",
                                                  "id2label",
                                                  "label2id",
                                                  "is_encoder_decoder",
                                                  "chunk_size_feed_forward",
                                                  "problem_type",
                                                  "use_return_dict",
                                                  "unsloth_fixed",
                                                  "unsloth_version",
                                                  "max_position_embeddings",
                                                  "add_cross_attention",
                                                  "is_decoder",
                                                  "tie_encoder_decoder",
                                                  "sep_token_id",
                                                  "decoder_start_token_id",
                                                  "finetuning_task",
                                                  "task_specific_params",
                                                  "tokenizer_class",
                                                  "prefix",
                                                  "torchscript",
                                                  "cross_attention_hidden_size",
                                                  "model_type"};

/// Entries of which one value alone is built.
struct Fixed {
  std::string_view name;
  json value;
};

const std::vector<Fixed>& fixed_entries() {
  static const std::vector<Fixed> entries{{"hidden_act", "silu"},
                                          {"attention_bias", false},
                                          {"mlp_bias", false},
                                          {"attention_dropout", 0.0},
                                          {"pretraining_tp", 1}};
  return entries;
}

class Reader {
 public:
  Reader(const std::string& path, const json& entries, Problems& problems)
      : path_(path), entries_(entries), problems_(problems) {}

  std::vector<ArchitectureKey> read() {
    require_family();
    for (const auto* name : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
      whole(name, std::nullopt);
    }
    whole("num_key_value_heads", 0);  // 0: as many as query heads
    whole("head_dim", 0);             // 0: hidden_size / num_attention_heads
    real("rms_norm_eps", 1e-6);
    flag("tie_word_embeddings", false);
    read_rotary();
    for (const auto& [name, value] : fixed_entries()) {
      known_.insert(std::string(name));
      if (const auto* given = find(name); given != nullptr && *given != value) {
        problem(fmt::format("{} = {}: this program builds {} alone", name, given->dump(), value.dump()));
      }
    }
    refuse_unknown();
    return keys_;
  }

 private:
  /// nullptr for an absent entry and for null, which the public implementation writes for "not set".
  [[nodiscard]] static const json* find_in(const json& object, std::string_view name) {
    const auto entry = object.find(name);
    return entry == object.end() || entry->is_null() ? nullptr : &*entry;
  }
  [[nodiscard]] const json* find(std::string_view name) const { return find_in(entries_, name); }

  void problem(const std::string& text) { problems_.push_back(fmt::format("{}: {}", path_, text)); }

  void require_family() {
    const auto* family = find("model_type");
    if (family == nullptr || *family != "llama") {
      problem(fmt::format("model_type = {}: language models of type \"llama\" are built",
                          family == nullptr ? "missing" : family->dump()));
    }
  }

  void add(const std::string& key, std::string value) { keys_.push_back({"model." + key, std::move(value)}); }

  void whole(const std::string& name, std::optional<std::int64_t> fallback) {
    known_.insert(name);
    const auto* entry = find(name);
    if (entry != nullptr && entry->is_number_integer() && entry->get<std::int64_t>() >= 1) {
      add(name, std::to_string(entry->get<std::int64_t>()));
    } else if (entry == nullptr && fallback) {
      add(name, std::to_string(*fallback));
    } else {
      problem(fmt::format("{} = {}: a whole number from 1 is needed", name, entry == nullptr ? "missing" : entry->dump()));
    }
  }

  void real(const std::string& name, double fallback) {
    known_.insert(name);
    real_in(entries_, name, name, fallback);
  }
  void real_in(const json& object, const std::string& name, const std::string& key, std::optional<double> fallback) {
    const auto* entry = find_in(object, name);
    if (entry != nullptr && entry->is_number()) {
      add(key, float_text(entry->get<double>()));
    } else if (entry == nullptr && fallback) {
      add(key, float_text(*fallback));
    } else {
      problem(fmt::format("{} = {}: a number is needed", key, entry == nullptr ? "missing" : entry->dump()));
    }
  }

  void flag(const std::string& name, bool fallback) {
    known_.insert(name);
    const auto* entry = find(name);
    if (entry != nullptr && !entry->is_boolean()) {
      problem(fmt::format("{} = {}: true or false is needed", name, entry->dump()));
      return;
    }
    add(name, (entry == nullptr ? fallback : entry->get<bool>()) ? "true" : "false");
  }

  void read_rotary() {
    known_.insert({"rope_theta", "rope_scaling", "rope_parameters"});
    constexpr double kDefaultTheta = 10000;
    const auto* older = find("rope_scaling");
    const auto* newer = find("rope_parameters");
    if (newer != nullptr && (older != nullptr || find("rope_theta") != nullptr)) {
      problem("rope_parameters stands beside rope_theta or rope_scaling: they say the same, keep one of both");
      return;
    }
    const json* said = newer != nullptr ? newer : older;
    if (said != nullptr && !said->is_object()) {
      problem(fmt::format("{} = {}: an object is needed", newer != nullptr ? "rope_parameters" : "rope_scaling", said->dump()));
      return;
    }
    real_in(newer != nullptr ? *newer : entries_, "rope_theta", "rope_theta", kDefaultTheta);
    if (said == nullptr) {
      return;
    }
    const auto* type = find_in(*said, "rope_type");
    if (type == nullptr) {
      type = find_in(*said, "type");  // of still older files
    }
    if (type == nullptr || (*type != "default" && *type != "llama3")) {
      problem(fmt::format("rope_type = {}: default and llama3 are built", type == nullptr ? "missing" : type->dump()));
      return;
    }
    std::set<std::string> expected{"rope_type", "type", "rope_theta"};
    if (*type == "llama3") {
      add("rope_scaling.rope_type", "\"llama3\"");
      for (const std::string name : {"factor", "low_freq_factor", "high_freq_factor"}) {
        expected.insert(name);
        real_in(*said, name, "rope_scaling." + name, std::nullopt);
      }
      const std::string original = "original_max_position_embeddings";
      expected.insert(original);
      if (const auto* entry = find_in(*said, original); entry != nullptr && entry->is_number_integer()) {
        add("rope_scaling." + original, std::to_string(entry->get<std::int64_t>()));
      } else {
        problem(fmt::format("rope_scaling.{} = {}: a whole number is needed", original,
                            entry == nullptr ? "missing" : entry->dump()));
      }
    }
    for (const auto& [name, value] : said->items()) {
      if (!expected.contains(name)) {
        problem(fmt::format("rope_scaling.{} = {}: rope_type {} has no such number here", name, value.dump(), type->dump()));
      }
    }
  }

  void refuse_unknown() {
    for (const auto& [name, value] : entries_.items()) {
      const bool inert = std::ranges::find(kInert, name) != kInert.end() || name.starts_with('_');
      if (!known_.contains(name) && !inert && !value.is_null()) {
        problem(fmt::format("{} = {}: not known here; if it changes nothing of the model, leave it out of this file", name,
                            value.dump()));
      }
    }
  }

  const std::string& path_;
  const json& entries_;
  Problems& problems_;
  std::set<std::string> known_;
  std::vector<ArchitectureKey> keys_;
};

}  // namespace

std::vector<ArchitectureKey> read_architecture(const std::string& path, Problems& problems) {
  const auto entries = read_json_object(path, problems);
  if (!entries) {
    return {};
  }
  const auto before = problems.size();
  auto keys = Reader(path, *entries, problems).read();
  return problems.size() == before ? keys : std::vector<ArchitectureKey>();
}

}  // namespace shardmark::config
