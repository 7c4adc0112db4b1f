// A decoder-only language model of the Llama architecture, next-token loss on rows of tokens. The loss counts each target
// once: column t - 1 predicts the label of column t. Letters: N rows, T positions.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "data/synthetic_tokens.hpp"
#include "data/tokens_file.hpp"
#include "model/llama.hpp"
#include "table.hpp"

namespace shardmark::workloads {
namespace {

constexpr std::int64_t kSyntheticRows = 4096;

const std::set<std::string>& projections() {
  static const std::set<std::string> names{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return names;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char character : text) {
    if (character == ',') {
      words.emplace_back();
    } else if (character != ' ') {
      words.back() += character;
    }
  }
  return words;
}

model::LoraConfig lora_config(const config::ModelSection::Lora& section) {
  const auto names = split(section.targets);
  return {.rank = section.rank,
          .alpha = section.alpha > 0 ? section.alpha : static_cast<double>(section.rank),
          .dropout = section.dropout,
          .targets = section.targets == "all-linear" ? projections() : std::set(names.begin(), names.end())};
}

model::LlamaConfig llama_config(const config::ModelSection& section) {
  return {.vocab_size = section.vocab_size,
          .hidden_size = section.hidden_size,
          .intermediate_size = section.intermediate_size,
          .num_hidden_layers = section.num_hidden_layers,
          .num_attention_heads = section.num_attention_heads,
          .num_key_value_heads = section.num_key_value_heads > 0 ? section.num_key_value_heads : section.num_attention_heads,
          .head_dim = section.head_dim > 0 ? section.head_dim : section.hidden_size / section.num_attention_heads,
          .rms_norm_eps = section.rms_norm_eps,
          .tie_word_embeddings = section.tie_word_embeddings,
          .lora = lora_config(section.lora)};
}

/// Throws ConfigError with everything that no model can be built of.
void check(const config::RunConfig& config) {
  const auto& model = config.model;
  std::vector<std::string> problems;
  const auto at_least = [&](const char* key, std::int64_t value, std::int64_t least) {
    if (value < least) {
      problems.push_back(fmt::format("{} = {}: a language model needs at least {}", key, value, least));
    }
  };
  at_least("model.vocab_size", model.vocab_size, 1);
  at_least("model.hidden_size", model.hidden_size, 1);
  at_least("model.intermediate_size", model.intermediate_size, 1);
  at_least("model.num_hidden_layers", model.num_hidden_layers, 1);
  at_least("model.num_attention_heads", model.num_attention_heads, 1);
  at_least("data.sequence_length", config.data.sequence_length, 2);
  const std::int64_t heads = model.num_attention_heads;
  if (heads > 0 && model.num_key_value_heads > 0 && heads % model.num_key_value_heads != 0) {
    problems.push_back(fmt::format("model.num_key_value_heads = {} does not divide model.num_attention_heads = {}",
                                   model.num_key_value_heads, heads));
  }
  if (heads > 0 && model.head_dim == 0 && model.hidden_size % (2 * heads) != 0) {
    problems.push_back(fmt::format("model.hidden_size = {} does not split into {} heads of an even width: give model.head_dim",
                                   model.hidden_size, heads));
  }
  if (model.head_dim % 2 != 0) {
    problems.push_back(fmt::format("model.head_dim = {}: rotary positions need an even width", model.head_dim));
  }
  if (const auto& scaling = model.rope_scaling; scaling.rope_type == "llama3") {
    if (scaling.factor < 1 || scaling.original_max_position_embeddings < 1 ||
        scaling.high_freq_factor <= scaling.low_freq_factor) {
      problems.push_back(fmt::format(
          "model.rope_scaling: factor = {}, low_freq_factor = {}, high_freq_factor = {}, original_max_position_embeddings = "
          "{}: "
          "llama3 needs a factor and a length of at least 1, and a high_freq_factor above low_freq_factor",
          scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_position_embeddings));
    }
  }
  if (model.lora.rank > 0 && model.lora.targets != "all-linear") {
    for (const auto& name : split(model.lora.targets)) {
      if (!projections().contains(name)) {
        problems.push_back(fmt::format("model.lora.targets = \"{}\": no projection \"{}\"; accepted: all-linear, or some of {}",
                                       model.lora.targets, name, fmt::join(projections(), ", ")));
      }
    }
  }
  if (model.dropout != 0) {
    problems.push_back(fmt::format("model.dropout = {}: the Llama architecture has none; 0 is accepted", model.dropout));
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
}

torch::Tensor frequencies(const config::ModelSection& model, std::int64_t head_dim) {
  const torch::Tensor plain = model::rotary_frequencies(model.rope_theta, head_dim);
  const auto& scaling = model.rope_scaling;
  return scaling.rope_type == "llama3"
             ? model::llama3_frequencies(plain, {.factor = scaling.factor,
                                                 .low_turns = scaling.low_freq_factor,
                                                 .high_turns = scaling.high_freq_factor,
                                                 .original_length = scaling.original_max_position_embeddings})
             : plain;
}

class LanguageModel final : public train::Workload {
 public:
  explicit LanguageModel(const config::RunConfig& config)
      : config_(checked(config)),
        layers_(config_.num_hidden_layers),
        attention_width_(config_.num_attention_heads * config_.head_dim),
        checkpointing_(config.model.activation_checkpointing),
        model_(parameters_, config_, frequencies(config.model, config_.head_dim)) {
    parameters_.set_checkpointing(checkpointing_);
    training_ = open(config.data, config.data.path, static_cast<std::uint64_t>(config.data.seed));
    if (!config.data.eval_path.empty()) {
      held_out_ = open(config.data, config.data.eval_path, 0);
    }
  }

  [[nodiscard]] model::ParameterList& parameters() override { return parameters_; }
  [[nodiscard]] std::int64_t num_rows() const override { return training_->num_rows(); }
  [[nodiscard]] std::string data_source() const override { return training_->describe(); }

  [[nodiscard]] double targets(std::span<const std::int64_t> rows) const override { return targets_of(*training_, rows); }

  [[nodiscard]] train::Work work(std::span<const std::int64_t> rows) const override {
    train::Work work;
    for (const std::int64_t row : rows) {
      work.samples += row >= 0 ? 1 : 0;
      work.tokens += training_->counts(row).tokens;
      work.padded_tokens += row >= 0 ? training_->length() : 0;
    }
    return work;
  }

  /// Of rows with the average tokens and visible keys of the training set; padding counts nothing.
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override {
    const data::TokenCounts total = training_->total();
    const double share = static_cast<double>(num_rows) / static_cast<double>(training_->num_rows());
    const double products = 2.0 * static_cast<double>(model_.matmul_parameters()) * static_cast<double>(total.tokens) * share;
    // Scores and mixing: 2 FLOPs each a query, key and element.
    const double attention =
        4.0 * static_cast<double>(attention_width_ * layers_) * static_cast<double>(total.visible_keys) * share;
    std::int64_t adapters = 0;
    for (const auto& parameter : parameters_.parameters()) {
      adapters += parameter.is_adapter ? parameter.numel() : 0;
    }
    const double adapted = 2.0 * static_cast<double>(adapters) * static_cast<double>(total.tokens) * share;
    const double forward = products + attention + adapted;
    // Backward is twice the forward, but frozen weights get no gradient of their own. Recomputation runs the blocks, not the
    // head, once more.
    const double training = 3 * forward - (adapters > 0 ? products : 0);
    const double head = 2.0 * static_cast<double>(config_.vocab_size * config_.hidden_size) * static_cast<double>(total.tokens);
    return {training, training + (checkpointing_ ? forward - head * share : 0)};
  }

  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    return {read(*training_, rows), key};
  }

  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override {
    return model_.loss_sum(as_tokens(batch.tensors, batch.key));
  }

  [[nodiscard]] std::int64_t num_eval_rows() const override { return held_out_ ? held_out_->num_rows() : 0; }
  [[nodiscard]] std::string quality_name() const override { return "eval_loss"; }
  [[nodiscard]] bool higher_is_better() const override { return false; }
  /// One pass of the model for any number of rows, none included: ranks that gather parameters together stay together.
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> eval_rows) override {
    constexpr std::int64_t kFiller[] = {-1};
    const auto tensors = read(*held_out_, eval_rows.empty() ? std::span<const std::int64_t>(kFiller) : eval_rows);
    return {model_.loss_sum(as_tokens(tensors, {.training = false})).item<double>(), targets_of(*held_out_, eval_rows)};
  }

 private:
  static model::LlamaConfig checked(const config::RunConfig& config) {
    check(config);
    return llama_config(config.model);
  }

  [[nodiscard]] std::unique_ptr<data::TokenSource> open(const config::DataSection& section, const std::string& path,
                                                        std::uint64_t seed) const {
    if (path.empty()) {
      return std::make_unique<data::SyntheticTokens>(
          data::SyntheticTokensOptions{kSyntheticRows, section.sequence_length, config_.vocab_size, seed});
    }
    return std::make_unique<data::TokensFile>(
        path, data::TokensExpectation{.vocabulary = config_.vocab_size, .length = section.sequence_length});
  }

  static double targets_of(const data::TokenSource& source, std::span<const std::int64_t> rows) {
    std::int64_t sum = 0;
    for (const std::int64_t row : rows) {
      sum += source.counts(row).targets;
    }
    return static_cast<double>(sum);
  }

  /// Tokens, labels and, where the source has them, segment numbers, (N, T) each.
  [[nodiscard]] std::vector<torch::Tensor> read(data::TokenSource& source, std::span<const std::int64_t> rows) const {
    std::vector<torch::Tensor> tensors;
    std::vector<std::span<std::int32_t>> spans(3);
    for (std::size_t i = 0; i < (source.has_segments() ? 3U : 2U); ++i) {
      tensors.push_back(at::empty({static_cast<std::int64_t>(rows.size()), source.length()}, staging(at::kInt)));
      spans[i] = {tensors[i].data_ptr<std::int32_t>(), static_cast<std::size_t>(tensors[i].numel())};
    }
    source.read(rows, {.input_ids = spans[0], .labels = spans[1], .segment_ids = spans[2]});
    for (auto& tensor : tensors) {
      tensor = to_device(tensor).to(at::kLong);
    }
    return tensors;
  }

  static model::TokenBatch as_tokens(const std::vector<torch::Tensor>& tensors, const model::ForwardKey& key) {
    return {.input_ids_NT = tensors[0],
            .labels_NT = tensors[1],
            .segment_ids_NT = tensors.size() > 2 ? tensors[2] : torch::Tensor(),
            .key = key};
  }

  model::ParameterList parameters_;
  model::LlamaConfig config_;
  std::int64_t layers_;
  std::int64_t attention_width_;
  bool checkpointing_;
  model::Llama model_;
  std::unique_ptr<data::TokenSource> training_;
  std::unique_ptr<data::TokenSource> held_out_;
};

}  // namespace

std::unique_ptr<train::Workload> make_lm(const config::RunConfig& config) {
  return std::make_unique<LanguageModel>(config);
}

}  // namespace shardmark::workloads
