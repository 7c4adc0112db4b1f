#include "config/keys.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/text.hpp"

namespace shardmark::config {
namespace {

#define SM_MEMBER(path) [](RunConfig& config) -> Member { return &config.path; }

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

Key text(std::string name, std::string help, std::function<Member(RunConfig&)> member, bool hashed = true) {
  Key key;
  key.name = std::move(name);
  key.default_text = "\"\"";
  key.hashed = hashed;
  key.help = std::move(help);
  key.member = std::move(member);
  return key;
}

/// The first accepted value is the default.
Key choice(std::string name, std::vector<std::string> accepted, std::string help, std::function<Member(RunConfig&)> member) {
  Key key = text(std::move(name), std::move(help), std::move(member));
  key.default_text = "\"" + accepted.front() + "\"";
  key.accepted = std::move(accepted);
  return key;
}

Key flag(std::string name, bool value, std::string help, std::function<Member(RunConfig&)> member, bool hashed = true) {
  Key key = text(std::move(name), std::move(help), std::move(member), hashed);
  key.default_text = value ? "true" : "false";
  return key;
}

Key number(std::string name, std::string default_text, double low, double high, std::string help,
           std::function<Member(RunConfig&)> member, bool hashed = true) {
  Key key = text(std::move(name), std::move(help), std::move(member), hashed);
  key.default_text = std::move(default_text);
  key.low = low;
  key.high = high;
  return key;
}

std::vector<Key> model_and_data_keys() {
  return {
      text("workload.name", "which reference workload to train: see `shardmark list`", SM_MEMBER(workload.name)),
      text("model.checkpoint", "folder with model.safetensors to start from; \"\" = random weights from numerics.seed",
           SM_MEMBER(model.checkpoint)),
      choice("model.variant", {"classification", "regression"}, "what an MLP is trained for", SM_MEMBER(model.variant)),
      number("model.dropout", "0.0", 0, 0.999, "probability of zeroing an activation", SM_MEMBER(model.dropout)),
      number("model.input_width", "0", 0, 1e9, "features per row", SM_MEMBER(model.input_width)),
      number("model.width", "0", 0, 1e9, "width of the hidden layers", SM_MEMBER(model.width)),
      number("model.layers", "0", 0, 1e6, "hidden layers", SM_MEMBER(model.layers)),
      number("model.classes", "0", 0, 1e9, "classes, or outputs of a regression", SM_MEMBER(model.classes)),
      text("data.path", "HDF5 data file made by scripts/prepare_data.py; \"\" = synthetic rows", SM_MEMBER(data.path)),
      text("data.eval_path", "held-out rows for the quality after training; \"\" = none", SM_MEMBER(data.eval_path)),
      number("data.global_batch", "0", 0, 1e12, "rows per optimizer step over all ranks; 0 = micro_batch x accumulation x ranks",
             SM_MEMBER(data.global_batch)),
      number("data.micro_batch", "0", 0, 1e12, "rows per rank and micro-step; 0 = the rank's whole share", SM_MEMBER(data.micro_batch)),
      number("data.accumulation", "0", 0, 1e9, "micro-steps per optimizer step; 0 = what the batch keys give",
             SM_MEMBER(data.accumulation)),
      flag("data.shuffle", true, "rows in an order drawn anew each epoch", SM_MEMBER(data.shuffle)),
      number("data.seed", "42", 0, 9e15, "of the row order and of synthetic rows", SM_MEMBER(data.seed)),
  };
}

std::vector<Key> training_keys() {
  return {
      choice("technique.name", {"ddp", "single"}, "how training is spread over ranks", SM_MEMBER(technique.name)),
      choice("technique.profile", {"native"}, "whose defaults a technique follows", SM_MEMBER(technique.profile)),
      number("technique.bucket_mb", "0.0", 0, 1e6, "MiB of gradients reduced together; 0 = automatic", SM_MEMBER(technique.bucket_mb)),
      choice("technique.accumulation", {"sync", "no_sync"}, "reduce every micro-step, or once after the last",
             SM_MEMBER(technique.accumulation)),
      choice("technique.unused_parameters", {"error", "allow"}, "what a parameter without gradient means",
             SM_MEMBER(technique.unused_parameters)),
      flag("technique.overlap", true, "reduce during backward; false = after it", SM_MEMBER(technique.overlap)),
      choice("precision.parameters", {"fp32"}, "type of the parameters that the optimizer updates", SM_MEMBER(precision.parameters)),
      choice("precision.compute", {"fp32"}, "type of forward and backward", SM_MEMBER(precision.compute)),
      choice("precision.reduce", {"fp32"}, "type of gradients on the wire", SM_MEMBER(precision.reduce)),
      choice("precision.state", {"fp32"}, "type of the optimizer state", SM_MEMBER(precision.state)),
      choice("precision.frozen", {"fp32"}, "type of frozen parameters", SM_MEMBER(precision.frozen)),
      choice("optimizer.name", {"sgd", "adam", "adamw"}, "update rule", SM_MEMBER(optimizer.name)),
      number("optimizer.lr", "0.001", 0, 1e6, "learning rate before the schedule", SM_MEMBER(optimizer.lr)),
      number("optimizer.betas", "[0.9, 0.999]", 0, 0.999999999, "decay of Adam's two moments", SM_MEMBER(optimizer.betas)),
      number("optimizer.eps", "1e-8", 0, 1, "added to Adam's denominator", SM_MEMBER(optimizer.eps)),
      number("optimizer.weight_decay", "0.0", 0, 1e3, "L2 in sgd and adam, decoupled in adamw", SM_MEMBER(optimizer.weight_decay)),
      choice("optimizer.decay", {"all", "matrices"}, "which parameters decay", SM_MEMBER(optimizer.decay)),
      number("optimizer.momentum", "0.0", 0, 1, "of sgd", SM_MEMBER(optimizer.momentum)),
      number("optimizer.clip_norm", "0.0", 0, 1e9, "largest global L2 norm of the gradient; 0 = off", SM_MEMBER(optimizer.clip_norm)),
      choice("schedule.name", {"constant", "linear", "cosine", "cosine_min", "step"}, "learning rate over steps", SM_MEMBER(schedule.name)),
      number("schedule.warmup_steps", "0", 0, 1e12, "linear rise at the start", SM_MEMBER(schedule.warmup_steps)),
      number("schedule.total_steps", "0", 0, 1e12, "where the decay ends; 0 = the run's length", SM_MEMBER(schedule.total_steps)),
      number("schedule.min_lr_rate", "0.0", 0, 1, "floor of cosine_min as a share of the rate", SM_MEMBER(schedule.min_lr_rate)),
      number("schedule.step_every", "0", 0, 1e12, "steps between drops of schedule step; 0 = never", SM_MEMBER(schedule.step_every)),
      number("schedule.gamma", "0.1", 0, 1, "factor of each drop", SM_MEMBER(schedule.gamma)),
      choice("numerics.reduction", {"fast", "ordered"}, "order of sums over ranks; ordered is bitwise equal over techniques",
             SM_MEMBER(numerics.reduction)),
      number("numerics.seed", "42", 0, 9e15, "of initial weights and dropout", SM_MEMBER(numerics.seed)),
      choice("numerics.on_nonfinite", {"fail", "skip"}, "what a NaN or Inf in loss or gradient does", SM_MEMBER(numerics.on_nonfinite)),
      number("numerics.replica_check_every", "0", 0, 1e12, "steps between comparisons of replicas; 0 = at the end",
             SM_MEMBER(numerics.replica_check_every)),
  };
}

std::vector<Key> run_keys() {
  return {
      choice("comm.backend", {"auto", "mpi"}, "what carries messages; auto = mpi on the CPU", SM_MEMBER(comm.backend)),
      number("comm.deadline_s", "600.0", 0.001, kUnbounded, "longest wait for other ranks in a step", SM_MEMBER(comm.deadline_s), false),
      number("comm.init_deadline_s", "600.0", 0.001, kUnbounded, "longest wait for other ranks at the start",
             SM_MEMBER(comm.init_deadline_s), false),
      flag("comm.check", true, "ranks agree on every collective before it starts", SM_MEMBER(comm.check)),
      number("measure.warmup_steps", "3", 0, 1e12, "steps before timing; fewer than 3 give no throughput", SM_MEMBER(measure.warmup_steps)),
      number("measure.steps", "20", 1, 1e12, "timed steps per block", SM_MEMBER(measure.steps)),
      number("measure.blocks", "5", 1, 1e9, "blocks of timed steps; the record is flushed after each", SM_MEMBER(measure.blocks)),
      text("checkpoint.export", "folder for model.safetensors after training; \"\" = none", SM_MEMBER(checkpoint.export_folder), false),
      text("output.path", "the record's file; \"\" = a name from preset, technique, ranks and time", SM_MEMBER(output.path), false),
      flag("output.overwrite", false, "replace an existing record", SM_MEMBER(output.overwrite), false),
      text("output.gradients", "folder for gradients.safetensors of step 0; \"\" = none", SM_MEMBER(output.gradients), false),
  };
}

#undef SM_MEMBER

std::vector<Key> make_keys() {
  std::vector<Key> all;
  for (auto&& part : {model_and_data_keys(), training_keys(), run_keys()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

std::span<const Key> keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

const Key* find_key(std::string_view name) {
  for (const auto& key : keys()) {
    if (key.name == name) {
      return &key;
    }
  }
  return nullptr;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const auto& key : keys()) {
    names.push_back(key.name);
  }
  return names;
}

std::string accepted_text(const Key& key) {
  if (!key.accepted.empty()) {
    return base::join(key.accepted, ", ");
  }
  RunConfig probe;
  const Member member = key.member(probe);
  if (std::holds_alternative<std::string*>(member)) {
    return "string";
  }
  if (std::holds_alternative<bool*>(member)) {
    return "true or false";
  }
  const bool list = std::holds_alternative<std::vector<double>*>(member);
  std::string kind = std::holds_alternative<std::int64_t*>(member) ? "whole number" : list ? "list of two numbers" : "number";
  kind += fmt::format(" from {:g}", key.low);
  return key.high < 1e6 ? kind + fmt::format(" to {:g}", key.high) : kind;
}

std::string list_keys() {
  std::string table;
  for (const auto& key : keys()) {
    table += fmt::format("{:<30} {:<16} {}  [{}]\n", key.name, key.default_text, key.help, accepted_text(key));
  }
  return table;
}

}  // namespace shardmark::config
