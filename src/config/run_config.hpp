#pragma once
// The typed configuration of one run: what every key of a TOML file or --set ends in. Filled and checked by config/parse.hpp;
// the table of keys in config/keys.cpp binds names, defaults, accepted values and help texts to these members.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::config {

/// A value that is one of some words, or a whole number.
struct WordOrNumber {
  std::string word;  // "" = the number counts
  std::int64_t number = 0;
  friend bool operator==(const WordOrNumber&, const WordOrNumber&) = default;
};

struct WorkloadSection {
  std::string name;
};
struct ModelSection {
  std::string checkpoint;
  std::string variant;
  double dropout = 0;
  std::int64_t input_width = 0;
  std::int64_t width = 0;
  std::vector<std::int64_t> layers;  // hidden layers of an MLP: one number; widths of the layers of each of two towers
  std::int64_t classes = 0;
  // Of the vector transformer, beside input_width, width and classes.
  std::int64_t blocks = 0;
  std::int64_t heads = 0;
  std::int64_t mlp_width = 0;
  // Of two towers, beside width; 0 = what the data file says.
  std::int64_t users = 0;
  std::int64_t movies = 0;
  // Of language models, under config.json's names.
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // 0 = num_attention_heads
  std::int64_t head_dim = 0;             // 0 = hidden_size / num_attention_heads
  double rope_theta = 0;
  struct RopeScaling {
    std::string rope_type;  // default, llama3
    double factor = 0;
    double low_freq_factor = 0;
    double high_freq_factor = 0;
    std::int64_t original_max_position_embeddings = 0;
  };
  RopeScaling rope_scaling;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  // Of detectors.
  std::vector<double> stages;  // blocks of each stage of the backbone
  std::int64_t stem = 0;       // channels of the first convolution
  std::int64_t fpn = 0;        // channels of the pyramid and the heads
  std::int64_t groups = 0;     // of the heads' group normalisation
  std::vector<double> sizes;   // short side, longest long side
  std::string batch_norm;      // local, sync, eval, frozen
  struct Lora {
    std::int64_t rank = 0;  // 0: all weights train
    double alpha = 0;
    double dropout = 0;
    std::string targets;  // all-linear, or names of projections with commas between
    std::string checkpoint;
  };
  Lora lora;
  bool activation_checkpointing = false;
};
struct DataSection {
  std::string path;
  std::string eval_path;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  std::int64_t sequence_length = 0;
  std::int64_t pad_to = 0;          // pixels a side; 0 = what the micro-batch needs
  double flip = 0;                  // probability
  std::int64_t loader_threads = 0;  // 0 = rows are made when they are needed
  bool shuffle = true;
  std::int64_t seed = 0;
};
struct TechniqueSection {
  std::string name;                    // single, ddp, zero1, zero2, zero3, fsdp
  std::string profile;                 // native, fsdp2, deepspeed
  double bucket_mb = 0;                // MiB; 0 = automatic
  std::int64_t prefetch = 0;           // units; 0 = automatic
  WordOrNumber reshard_after_forward;  // true, false, k
  WordOrNumber shard_group;            // "node", or ranks; 0 = all
  std::string accumulation;            // sync, no_sync
  std::string offload;                 // none, optimizer
  std::int64_t persistence_threshold = 0;
  double live_parameters_mb = 0;  // MiB; 0 = no limit
  std::string unused_parameters;  // error, allow
  bool overlap = true;
};
struct PrecisionSection {
  std::string parameters, compute, reduce, state, frozen;  // fp32, bf16
};
struct OptimizerSection {
  std::string name;  // sgd, adam, adamw
  double lr = 0;
  std::vector<double> betas;
  double eps = 0;
  double weight_decay = 0;
  std::string decay;  // all, matrices
  double momentum = 0;
  double clip_norm = 0;
};
struct ScheduleSection {
  std::string name;  // constant, linear, cosine, cosine_min, step
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  double min_lr_rate = 0;
  std::int64_t step_every = 0;
  double gamma = 0;
};
struct NumericsSection {
  std::string reduction;  // fast, ordered
  std::int64_t seed = 0;
  std::string on_nonfinite;  // fail, skip
  std::int64_t replica_check_every = 0;
};
struct CommSection {
  std::string backend;  // auto, nccl, mpi
  double deadline_s = 0;
  double init_deadline_s = 0;
  bool check = true;
  bool allow_slow_path = false;
};
struct MeasureSection {
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 0;
  std::int64_t blocks = 0;
};
struct EvaluateSection {
  std::int64_t every = 0;  // steps; 0 = only after training
  double target = 0;       // 0 = none
};
struct CheckpointSection {
  std::string export_folder;  // key checkpoint.export
};
struct OutputSection {
  std::string path;
  bool overwrite = false;
  bool trace = false;
  std::string gradients;
};

/// Where one key's effective value came from.
struct KeyOrigin {
  std::string key;
  std::string value;   // as TOML
  std::string origin;  // "default", "preset mlp", "file PATH", "--set", "--technique", "-o"
};

struct RunConfig {
  std::string preset;  // NAME, or the file's stem
  std::int64_t definition_version = 1;
  WorkloadSection workload;
  ModelSection model;
  DataSection data;
  TechniqueSection technique;
  PrecisionSection precision;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  NumericsSection numerics;
  CommSection comm;
  MeasureSection measure;
  EvaluateSection evaluate;
  CheckpointSection checkpoint;
  OutputSection output;
  std::vector<KeyOrigin> origins;  // one per key, in table order

  /// Whether a preset, a file or the command line gave the key's value.
  [[nodiscard]] bool is_given(const std::string& key) const {
    return std::ranges::any_of(origins, [&](const auto& one) { return one.key == key && one.origin != "default"; });
  }
};

/// How a step's global batch is cut (design section 2).
struct BatchPlan {
  std::int64_t global_batch = 0;  // rows per optimizer step over all ranks
  std::int64_t micro_batch = 0;   // rows per rank and micro-step
  std::int64_t accumulation = 1;  // micro-steps per optimizer step
};

/// Resolves the batch keys for a number of ranks. Throws ConfigError naming the nearest values that work.
[[nodiscard]] BatchPlan resolve_batch(const RunConfig& config, int world_size);

}  // namespace shardmark::config
