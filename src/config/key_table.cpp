// The table itself. A key stands here only if this program acts on it; everything else is refused as unknown.

#include <array>
#include <utility>

#include "config/keys.hpp"

namespace shardmark::config {
namespace {

#define SM_MEMBER(path) +[](RunConfig& config) -> Member { return &config.path; }

// Upper bounds that no sensible run reaches; products of what they bound stay within 64 bits.
constexpr Range kRows{.low = 0, .high = 1e9};
constexpr Range kGlobalRows{.low = 0, .high = 1e12};
constexpr Range kMicroSteps{.low = 0, .high = 1e6};
constexpr Range kSteps{.low = 0, .high = 1e9};
constexpr Range kWidth{.low = 0, .high = 1e6};
constexpr Range kVocabulary{.low = 0, .high = 1e7};
constexpr Range kLayers{.low = 0, .high = 1e4};
constexpr Range kBlocks{.low = 1, .high = 1e3};
constexpr Range kPixels{.low = 0, .high = 1e5};
// Whole numbers up to here are exact in a double, so that other programs read the same seed.
constexpr Range kSeed{.low = 0, .high = 9e15};
constexpr Range kShare{.low = 0, .high = 1};
constexpr Range kBelowOne{.low = 0, .high = 1, .without_high = true};
constexpr Range kAtLeastZero{.low = 0, .high = 1e9};
// A wait always ends: within 11 days.
constexpr Range kDeadline{.low = 0, .high = 1e6, .without_low = true};

std::vector<std::string> types() {
  return {"fp32", "bf16"};
}

/// The first accepted value is the default.
Key choice(std::string name, std::vector<std::string> accepted, std::string help, Member (*member)(RunConfig&)) {
  Key key{.name = std::move(name), .accepted = std::move(accepted), .help = std::move(help), .member = member};
  key.default_text = "\"" + key.accepted.front() + "\"";
  return key;
}

Key text(std::string name, std::string help, Member (*member)(RunConfig&)) {
  return {.name = std::move(name), .help = std::move(help), .member = member};
}

struct NumberRule {
  std::string default_text;
  Range range;
  std::string unit = {};
};

Key number(std::string name, NumberRule rule, std::string help, Member (*member)(RunConfig&)) {
  return {.name = std::move(name),
          .default_text = std::move(rule.default_text),
          .range = rule.range,
          .unit = std::move(rule.unit),
          .help = std::move(help),
          .member = member};
}

Key list_of(std::size_t length, Key key) {
  key.list_length = length;
  return key;
}

Key flag(std::string name, std::string default_text, std::string help, Member (*member)(RunConfig&)) {
  return {.name = std::move(name), .default_text = std::move(default_text), .help = std::move(help), .member = member};
}

/// The first word is the default, or 0 if `default_text` says so.
Key word_or_number(std::string name, std::vector<std::string> words, NumberRule rule, std::string help,
                   Member (*member)(RunConfig&)) {
  return {.name = std::move(name),
          .default_text = std::move(rule.default_text),
          .accepted = std::move(words),
          .range = rule.range,
          .unit = std::move(rule.unit),
          .help = std::move(help),
          .member = member};
}

Key defaulted(std::string default_text, Key key) {
  key.default_text = std::move(default_text);
  return key;
}

Key unhashed(Key key) {
  key.hashed = false;
  return key;
}

std::vector<Key> model_and_data_keys() {
  return {
      text("workload.name", "which reference workload to train: see `shardmark list`", SM_MEMBER(workload.name)),
      text("model.checkpoint",
           "folder to start from: model.safetensors or its index, and for language models config.json, which then gives the "
           "architecture; \"\" = random weights from numerics.seed",
           SM_MEMBER(model.checkpoint)),
      choice("model.variant", {"classification", "regression", "v1", "v2"},
             "what an MLP is trained for; which RetinaNet: v1 (P6 from P5, L1), v2 (P6 from C5, group norm, GIoU)",
             SM_MEMBER(model.variant)),
      number("model.dropout", {"0.0", kBelowOne}, "probability of zeroing an activation", SM_MEMBER(model.dropout)),
      number("model.input_width", {"0", kWidth}, "features per row", SM_MEMBER(model.input_width)),
      number("model.width", {"0", kWidth}, "width of the hidden layers", SM_MEMBER(model.width)),
      number("model.layers", {"0", kWidth}, "hidden layers of an MLP; two towers: widths of a tower's layers",
             SM_MEMBER(model.layers)),
      number("model.classes", {"0", kWidth}, "classes, or outputs of a regression", SM_MEMBER(model.classes)),
      number("model.blocks", {"0", kLayers}, "blocks of the vector transformer", SM_MEMBER(model.blocks)),
      number("model.heads", {"0", kLayers}, "its attention heads", SM_MEMBER(model.heads)),
      number("model.mlp_width", {"0", kWidth}, "width of its MLPs", SM_MEMBER(model.mlp_width)),
      number("model.users", {"0", kRows}, "rows of the table of users; 0 = what the data say", SM_MEMBER(model.users)),
      number("model.movies", {"0", kRows}, "rows of the table of movies, which ids are taken modulo; 0 = what the data say",
             SM_MEMBER(model.movies)),
      number("model.vocab_size", {"0", kVocabulary}, "tokens that a language model knows", SM_MEMBER(model.vocab_size)),
      number("model.hidden_size", {"0", kWidth}, "width of a language model", SM_MEMBER(model.hidden_size)),
      number("model.intermediate_size", {"0", kWidth}, "width of its MLPs", SM_MEMBER(model.intermediate_size)),
      number("model.num_hidden_layers", {"0", kLayers}, "its decoder blocks", SM_MEMBER(model.num_hidden_layers)),
      number("model.num_attention_heads", {"0", kLayers}, "query heads of a block", SM_MEMBER(model.num_attention_heads)),
      number("model.num_key_value_heads", {"0", kLayers}, "heads of keys and values; 0 = num_attention_heads",
             SM_MEMBER(model.num_key_value_heads)),
      number("model.head_dim", {"0", kLayers}, "width of a head; 0 = hidden_size / num_attention_heads",
             SM_MEMBER(model.head_dim)),
      number("model.rope_theta", {"10000.0", {.low = 0, .high = 1e12, .without_low = true}}, "base of the rotary positions",
             SM_MEMBER(model.rope_theta)),
      choice("model.rope_scaling.rope_type", {"default", "llama3"},
             "llama3: frequencies for longer rows than those of the pre-training, by the numbers beside it",
             SM_MEMBER(model.rope_scaling.rope_type)),
      number("model.rope_scaling.factor", {"0.0", kAtLeastZero}, "low frequencies are divided by it",
             SM_MEMBER(model.rope_scaling.factor)),
      number("model.rope_scaling.low_freq_factor", {"0.0", kAtLeastZero},
             "turns over the original length below which a frequency is low", SM_MEMBER(model.rope_scaling.low_freq_factor)),
      number("model.rope_scaling.high_freq_factor", {"0.0", kAtLeastZero},
             "turns above which a frequency stays; between both it is blended", SM_MEMBER(model.rope_scaling.high_freq_factor)),
      number("model.rope_scaling.original_max_position_embeddings", {"0", {.low = 0, .high = 1e9}, "tokens"},
             "length of the pre-training", SM_MEMBER(model.rope_scaling.original_max_position_embeddings)),
      number("model.rms_norm_eps", {"1e-05", kShare}, "added to the mean square in RMSNorm", SM_MEMBER(model.rms_norm_eps)),
      flag("model.tie_word_embeddings", "false", "the head is the embedding", SM_MEMBER(model.tie_word_embeddings)),
      number("model.lora.rank", {"0", kLayers}, "width of the adapters of a frozen language model; 0 = none, all weights train",
             SM_MEMBER(model.lora.rank)),
      number("model.lora.alpha", {"0.0", kAtLeastZero}, "what adapters add is scaled by alpha / rank; 0 = rank",
             SM_MEMBER(model.lora.alpha)),
      number("model.lora.dropout", {"0.0", kBelowOne}, "probability of zeroing what enters an adapter",
             SM_MEMBER(model.lora.dropout)),
      defaulted("\"all-linear\"",
                text("model.lora.targets", "projections that get adapters: all-linear, or names as q_proj,v_proj",
                     SM_MEMBER(model.lora.targets))),
      text("model.lora.checkpoint",
           "folder with adapter_model.safetensors and adapter_config.json to start from; \"\" = adapters that add nothing",
           SM_MEMBER(model.lora.checkpoint)),
      list_of(4, number("model.stages", {"[3.0, 4.0, 6.0, 3.0]", kBlocks},
                        "bottleneck blocks of a detector's backbone, by stage", SM_MEMBER(model.stages))),
      number("model.stem", {"64", kLayers}, "channels of its first convolution; stages have 4, 8, 16, 32 times as many",
             SM_MEMBER(model.stem)),
      number("model.fpn", {"256", kLayers}, "channels of its feature pyramid and heads", SM_MEMBER(model.fpn)),
      number("model.groups", {"32", kLayers}, "groups of the heads' normalisation (v2)", SM_MEMBER(model.groups)),
      number("model.sizes", {"[800.0, 1333.0]", kPixels}, "images are scaled to this short side, or to this long side if less",
             SM_MEMBER(model.sizes)),
      choice("model.batch_norm", {"local", "sync", "eval", "frozen"},
             "whose statistics normalise: of a rank's rows, of all ranks', the running ones; frozen: those and fixed weights, "
             "stem and first stage fixed too",
             SM_MEMBER(model.batch_norm)),
      flag("model.activation_checkpointing", "false",
           "backward runs each block again instead of keeping its activations; same bits",
           SM_MEMBER(model.activation_checkpointing)),
      text("data.path", "HDF5 data file made by scripts/prepare_data.py; \"\" = synthetic rows", SM_MEMBER(data.path)),
      text("data.eval_path", "held-out rows for the quality after training; \"\" = none", SM_MEMBER(data.eval_path)),
      number("data.global_batch", {"0", kGlobalRows, "rows"},
             "rows per optimizer step over all ranks; 0 = micro_batch x accumulation x ranks", SM_MEMBER(data.global_batch)),
      number("data.micro_batch", {"0", kRows, "rows"},
             "rows per rank and micro-step; 0 = the rank's whole share of global_batch, 1 without one",
             SM_MEMBER(data.micro_batch)),
      number("data.accumulation", {"0", kMicroSteps, "steps"}, "micro-steps per optimizer step; 0 = what the batch keys give",
             SM_MEMBER(data.accumulation)),
      number("data.sequence_length", {"0", kWidth, "tokens"}, "positions of a row; a data file must have rows of this length",
             SM_MEMBER(data.sequence_length)),
      number("data.pad_to", {"0", kPixels, "pixels"},
             "side of the square that images are padded to; 0 = the micro-batch's largest, to a multiple of 32",
             SM_MEMBER(data.pad_to)),
      number("data.flip", {"0.0", kShare}, "probability of mirroring a training image", SM_MEMBER(data.flip)),
      number("data.loader_threads", {"0", {.low = 0, .high = 256}, "threads"},
             "make images ready ahead of use; 0 = when they are needed; same results", SM_MEMBER(data.loader_threads)),
      flag("data.shuffle", "true", "rows in an order drawn anew each epoch", SM_MEMBER(data.shuffle)),
      number("data.seed", {"42", kSeed}, "of the row order and of synthetic rows", SM_MEMBER(data.seed)),
  };
}

std::vector<Key> technique_keys() {
  return {
      choice("technique.name", {"ddp", "single", "zero1", "zero2", "zero3", "fsdp"}, "how training is spread over ranks",
             SM_MEMBER(technique.name)),
      choice("technique.profile", {"native", "fsdp2", "deepspeed"}, "whose defaults a technique follows",
             SM_MEMBER(technique.profile)),
      number("technique.bucket_mb", {"0.0", {.low = 0, .high = 1e6}, "MiB"}, "gradients reduced together; 0 = automatic",
             SM_MEMBER(technique.bucket_mb)),
      number("technique.prefetch", {"0", {.low = 0, .high = 1e6}, "units"}, "zero3, fsdp: gathered ahead of use; 0 = automatic",
             SM_MEMBER(technique.prefetch)),
      word_or_number("technique.reshard_after_forward", {"true", "false"}, {"true", {.low = 2, .high = 1e6}, "ranks"},
                     "fsdp: free a unit after forward, keep it, or keep it sharded over k ranks",
                     SM_MEMBER(technique.reshard_after_forward)),
      word_or_number("technique.shard_group", {"node"}, {"0", {.low = 0, .high = 1e6}, "ranks"},
                     "fsdp: consecutive ranks that share one copy; 0 = all", SM_MEMBER(technique.shard_group)),
      choice("technique.accumulation", {"sync", "no_sync"}, "reduce every micro-step, or once after the last",
             SM_MEMBER(technique.accumulation)),
      choice("technique.offload", {"none", "optimizer"}, "optimizer: its states rest in host memory, and updates run there",
             SM_MEMBER(technique.offload)),
      number("technique.persistence_threshold", {"0", {.low = 0, .high = 1e12}},
             "zero3, fsdp: tensors of fewer elements stay whole", SM_MEMBER(technique.persistence_threshold)),
      number("technique.live_parameters_mb", {"0.0", {.low = 0, .high = 1e9}, "MiB"},
             "zero3, fsdp: most gathered parameters at once; 0 = no limit", SM_MEMBER(technique.live_parameters_mb)),
      choice("technique.unused_parameters", {"error", "allow"}, "what a parameter without gradient means",
             SM_MEMBER(technique.unused_parameters)),
      flag("technique.overlap", "true", "reduce during backward; false = after it", SM_MEMBER(technique.overlap)),
      choice("precision.parameters", types(), "type of the parameters that the optimizer updates",
             SM_MEMBER(precision.parameters)),
      choice("precision.compute", types(), "type of forward and backward", SM_MEMBER(precision.compute)),
      choice("precision.reduce", types(), "type of gradients on the wire", SM_MEMBER(precision.reduce)),
      choice("precision.state", types(), "type of the optimizer state", SM_MEMBER(precision.state)),
      choice("precision.frozen", types(), "type of frozen parameters", SM_MEMBER(precision.frozen)),
  };
}

std::vector<Key> training_keys() {
  return {
      choice("optimizer.name", {"sgd", "adam", "adamw", "adamw8bit"},
             "update rule; adamw8bit keeps moments as 8-bit codes, 256 to a scale", SM_MEMBER(optimizer.name)),
      number("optimizer.lr", {"0.001", {.low = 0, .high = 1e6, .without_low = true}}, "learning rate before the schedule",
             SM_MEMBER(optimizer.lr)),
      number("optimizer.betas", {"[0.9, 0.999]", kBelowOne}, "decay of Adam's two moments", SM_MEMBER(optimizer.betas)),
      number("optimizer.eps", {"1e-08", kShare}, "added to Adam's denominator", SM_MEMBER(optimizer.eps)),
      number("optimizer.weight_decay", {"0.0", {.low = 0, .high = 1e3}}, "L2 in sgd and adam, decoupled in adamw and adamw8bit",
             SM_MEMBER(optimizer.weight_decay)),
      choice("optimizer.decay", {"all", "matrices"}, "which parameters decay", SM_MEMBER(optimizer.decay)),
      number("optimizer.momentum", {"0.0", kBelowOne}, "of sgd", SM_MEMBER(optimizer.momentum)),
      number("optimizer.clip_norm", {"0.0", kAtLeastZero}, "largest global L2 norm of the gradient; 0 = off",
             SM_MEMBER(optimizer.clip_norm)),
      choice("schedule.name", {"constant", "linear", "cosine", "cosine_min", "step"}, "learning rate over steps",
             SM_MEMBER(schedule.name)),
      number("schedule.warmup_steps", {"0", kSteps, "steps"}, "linear rise at the start", SM_MEMBER(schedule.warmup_steps)),
      number("schedule.total_steps", {"0", kSteps, "steps"}, "where the decay ends; 0 = the run's length",
             SM_MEMBER(schedule.total_steps)),
      number("schedule.min_lr_rate", {"0.0", kShare}, "floor of cosine_min as a share of the rate",
             SM_MEMBER(schedule.min_lr_rate)),
      number("schedule.step_every", {"0", kSteps, "steps"}, "between drops of schedule step", SM_MEMBER(schedule.step_every)),
      number("schedule.gamma", {"0.1", kShare}, "factor of each drop", SM_MEMBER(schedule.gamma)),
      choice("numerics.reduction", {"fast", "ordered"}, "order of sums over ranks; ordered is bitwise equal over techniques",
             SM_MEMBER(numerics.reduction)),
      number("numerics.seed", {"42", kSeed}, "of initial weights and dropout", SM_MEMBER(numerics.seed)),
      choice("numerics.on_nonfinite", {"fail", "skip"}, "what a NaN or Inf in loss or gradient does",
             SM_MEMBER(numerics.on_nonfinite)),
      number("numerics.replica_check_every", {"0", kSteps, "steps"}, "between comparisons of replicas; 0 = at the end",
             SM_MEMBER(numerics.replica_check_every)),
  };
}

std::vector<Key> run_keys() {
  return {
      choice("comm.backend", {"auto", "nccl", "mpi"}, "what carries messages; auto = nccl on CUDA devices, mpi on the CPU",
             SM_MEMBER(comm.backend)),
      unhashed(number("comm.deadline_s", {"600.0", kDeadline, "s"}, "longest wait for other ranks in a step",
                      SM_MEMBER(comm.deadline_s))),
      unhashed(number("comm.init_deadline_s", {"600.0", kDeadline, "s"}, "longest wait for other ranks at the start",
                      SM_MEMBER(comm.init_deadline_s))),
      flag("comm.check", "true", "ranks agree on every collective before it starts", SM_MEMBER(comm.check)),
      unhashed(flag("comm.allow_slow_path", "false",
                    "accept sockets between nodes that have RDMA; else the check \"transport\" fails",
                    SM_MEMBER(comm.allow_slow_path))),
      number("measure.warmup_steps", {"3", kSteps, "steps"}, "before timing; fewer than 3 give no throughput",
             SM_MEMBER(measure.warmup_steps)),
      number("measure.steps", {"20", {.low = 1, .high = 1e9}, "steps"}, "timed in each block", SM_MEMBER(measure.steps)),
      number("measure.blocks", {"5", {.low = 1, .high = 1e6}}, "blocks of timed steps; the record is flushed after each",
             SM_MEMBER(measure.blocks)),
      number("evaluate.every", {"0", kSteps, "steps"},
             "between evaluations on the held-out rows, outside timed steps; 0 = only after training",
             SM_MEMBER(evaluate.every)),
      number("evaluate.target", {"0.0", {.low = -1e9, .high = 1e9}},
             "quality whose first reaching gives steps and time to target; training goes on; 0 = none",
             SM_MEMBER(evaluate.target)),
      unhashed(text("checkpoint.export", "folder for model.safetensors after training; \"\" = none",
                    SM_MEMBER(checkpoint.export_folder))),
      unhashed(text("output.path", "the record's file; \"\" = a name from preset, technique, ranks and time",
                    SM_MEMBER(output.path))),
      unhashed(flag("output.overwrite", "false", "replace an existing record", SM_MEMBER(output.overwrite))),
      unhashed(flag("output.trace", "false",
                    "record when every rank computed, waited and communicated; `export --to trace` shows it; costs step time",
                    SM_MEMBER(output.trace))),
      unhashed(
          text("output.gradients", "folder for gradients.safetensors of step 0; \"\" = none", SM_MEMBER(output.gradients))),
  };
}

#undef SM_MEMBER

std::vector<Key> make_keys() {
  std::vector<Key> all;
  for (const auto& part : std::array{model_and_data_keys(), technique_keys(), training_keys(), run_keys()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

std::span<const Key> keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

}  // namespace shardmark::config
