#include "analysis/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/text.hpp"

namespace shardmark::analysis {
namespace {

using record::Record;

// Settings that make two runs unlike, whatever the technique. The batch is compared as what took effect, see rows_per_step.
constexpr std::array<std::string_view, 48> kFairKeys{"workload.name",
                                                     "model.checkpoint",
                                                     "model.variant",
                                                     "model.dropout",
                                                     "model.input_width",
                                                     "model.width",
                                                     "model.layers",
                                                     "model.classes",
                                                     "model.blocks",
                                                     "model.heads",
                                                     "model.mlp_width",
                                                     "model.users",
                                                     "model.movies",
                                                     "model.vocab_size",
                                                     "model.hidden_size",
                                                     "model.intermediate_size",
                                                     "model.num_hidden_layers",
                                                     "model.num_attention_heads",
                                                     "model.num_key_value_heads",
                                                     "model.head_dim",
                                                     "model.rope_theta",
                                                     "model.rms_norm_eps",
                                                     "model.tie_word_embeddings",
                                                     "data.sequence_length",
                                                     "data.path",
                                                     "data.shuffle",
                                                     "data.seed",
                                                     "precision.parameters",
                                                     "precision.compute",
                                                     "precision.reduce",
                                                     "precision.state",
                                                     "precision.frozen",
                                                     "optimizer.name",
                                                     "optimizer.lr",
                                                     "optimizer.betas",
                                                     "optimizer.eps",
                                                     "optimizer.weight_decay",
                                                     "optimizer.decay",
                                                     "optimizer.momentum",
                                                     "optimizer.clip_norm",
                                                     "schedule.name",
                                                     "schedule.warmup_steps",
                                                     "schedule.total_steps",
                                                     "schedule.min_lr_rate",
                                                     "schedule.step_every",
                                                     "schedule.gamma",
                                                     "numerics.seed",
                                                     "numerics.on_nonfinite"};

// Beside technique.*: settings that change how fast the same numbers are made.
constexpr std::array<std::string_view, 4> kRunKeys{"model.activation_checkpointing", "numerics.reduction", "comm.backend",
                                                   "comm.check"};

std::string key_value(const Record& record, std::string_view key) {
  for (const auto& row : record.config_keys) {
    if (row.key.str() == key) {
      return row.value.str();
    }
  }
  return "";
}

/// `technique.overlap = false (a.h5: true)` for each setting of how `record` was run that differs from `base`. Such settings
/// are what a comparison is about, so they leave a ratio, but one that rests on them must say so.
std::string run_differently(const Record& record, const Record& base) {
  std::vector<std::string> differences;
  for (const auto& row : record.config_keys) {
    const std::string key = row.key.str();
    const bool of_technique = key.starts_with("technique.") && key != "technique.name" && key != "technique.profile";
    if (!of_technique && std::ranges::find(kRunKeys, key) == kRunKeys.end()) {
      continue;
    }
    const std::string other = key_value(base, key);
    if (!other.empty() && row.value.str() != other) {  // an older program's record lacks newer keys
      differences.push_back(
          fmt::format("{} = {} ({}: {})", key, row.value.str(), std::filesystem::path(base.path).filename().string(), other));
    }
  }
  return base::join(differences, ", ");
}

/// Samples of one full step over all ranks, and on rank 0: what the batch keys came to.
struct StepSamples {
  std::int64_t global = 0;
  std::int64_t per_rank = 0;
};

StepSamples rows_per_step(const Record& record) {
  StepSamples samples;
  for (const auto& row : record.steps) {
    if (row.step == 0) {
      samples.global += row.samples;
      samples.per_rank = std::max(samples.per_rank, row.samples);
    }
  }
  return samples;
}

std::pair<std::size_t, std::size_t> checks_passed(const Record& record) {
  const auto passed = std::ranges::count_if(record.checks, [](const auto& check) { return check.passed > 0; });
  return {static_cast<std::size_t>(passed), record.checks.size()};
}

bool same_family(const Record& a, const Record& b) {
  const bool same_technique = a.attributes.technique == b.attributes.technique || a.attributes.technique == "single" ||
                              b.attributes.technique == "single";
  return same_technique && peer_of(a) == peer_of(b);
}

struct Scaling {
  double efficiency = record::kMissing;
  std::string kind;
};

/// Against the record of the fewest ranks that differs in nothing but ranks, batch and (for one rank) technique.
Scaling scaling_of(const Record& record, const std::vector<Record>& records) {
  const Record* base = nullptr;
  for (const auto& other : records) {
    const bool usable = disqualified(other).empty() && same_family(record, other) &&
                        other.attributes.preset == record.attributes.preset &&
                        other.attributes.world_size < record.attributes.world_size;
    const auto differences = usable ? differing_keys(record, other) : std::vector<std::string>{};
    const bool only_batch = usable && std::ranges::all_of(differences, [](const auto& key) { return key == "global batch"; });
    if (only_batch && (base == nullptr || other.attributes.world_size < base->attributes.world_size)) {
      base = &other;
    }
  }
  if (base == nullptr) {
    return {};
  }
  const auto mine = rows_per_step(record);
  const auto theirs = rows_per_step(*base);
  const std::string kind = mine.per_rank == theirs.per_rank ? "weak" : mine.global == theirs.global ? "strong" : "";
  if (kind.empty()) {
    return {};
  }
  return {record.summary.front().samples_per_s_per_gpu / base->summary.front().samples_per_s_per_gpu, kind};
}

/// Whether two records may stand in one ratio, but for the keys that make it fair.
bool may_meet(const Record& a, const Record& b) {
  return disqualified(b).empty() && a.attributes.world_size == b.attributes.world_size &&
         a.attributes.preset == b.attributes.preset;
}

bool has_later_match(const std::vector<Record>& records, std::size_t index) {
  return std::any_of(records.begin() + static_cast<std::ptrdiff_t>(index) + 1, records.end(), [&](const Record& later) {
    return may_meet(records[index], later) && differing_keys(records[index], later).empty();
  });
}

std::vector<Cell> make_row(const Record& record, double ratio, const Scaling& scaling, const std::string& note) {
  const record::SummaryRow empty;
  const auto& summary = record.summary.empty() ? empty : record.summary.front();
  const auto [passed, all] = checks_passed(record);
  const auto& a = record.attributes;
  return {a.preset,
          a.technique,
          peer_of(record),
          a.world_size,
          summary.samples_per_s,
          summary.samples_per_s_per_gpu,
          ratio,
          scaling.efficiency,
          scaling.kind,
          summary.step_time_median_s,
          summary.peak_memory_bytes < 0 ? Cell(record::kMissing) : Cell(summary.peak_memory_bytes),
          summary.wire_bytes_per_step,
          summary.comm_exposed_fraction,
          summary.loss_final,
          summary.quality_name.str(),
          summary.quality_value,
          fmt::format("{}/{}", passed, all),
          a.status + (record.partial ? " (partial)" : ""),
          std::filesystem::path(record.path).filename().string(),
          note};
}

}  // namespace

std::string disqualified(const Record& record) {
  if (record.partial || record.attributes.status != "complete") {
    return fmt::format("status {}", record.attributes.status.empty() ? "unknown" : record.attributes.status);
  }
  if (record.summary.empty()) {
    return "no summary";
  }
  const auto [passed, all] = checks_passed(record);
  if (passed != all || all == 0) {
    return fmt::format("{} of {} checks passed", passed, all);
  }
  if (record.summary.front().oversubscribed != 0) {
    return record.summary.front().oversubscribed > 0 ? "oversubscribed" : "not known whether oversubscribed";
  }
  if (!(record.summary.front().samples_per_s > 0)) {
    return record.summary.front().warmed_up == 0 ? "not warmed up" : "no throughput";
  }
  return "";
}

std::string peer_of(const Record& record) {
  const std::string value = key_value(record, "peer");
  return value.size() >= 2 && value.front() == '"' ? value.substr(1, value.size() - 2) : value;
}

std::vector<std::string> differing_keys(const Record& a, const Record& b) {
  std::vector<std::string> differences;
  if (a.attributes.definition_version != b.attributes.definition_version) {
    differences.emplace_back("definition_version");
  }
  for (const auto key : kFairKeys) {
    if (key_value(a, key) != key_value(b, key)) {
      differences.emplace_back(key);
    }
  }
  // A record without the key is of a program that could not trace. Events cost step time.
  if ((key_value(a, "output.trace") == "true") != (key_value(b, "output.trace") == "true")) {
    differences.emplace_back("output.trace");
  }
  if (rows_per_step(a).global != rows_per_step(b).global) {
    differences.emplace_back("global batch");
  }
  if (!a.summary.empty() && !b.summary.empty() && a.summary.front().parameters != b.summary.front().parameters) {
    differences.emplace_back("model size");
  }
  return differences;
}

Comparison compare(const std::vector<Record>& records) {
  Comparison result;
  result.table.columns = {"preset",
                          "technique",
                          "peer",
                          "world_size",
                          "samples_per_s",
                          "samples_per_s_per_gpu",
                          "ratio",
                          "efficiency",
                          "scaling",
                          "step_time_median_s",
                          "peak_memory_bytes",
                          "wire_bytes_per_step",
                          "comm_exposed_fraction",
                          "loss_final",
                          "quality_name",
                          "quality_value",
                          "checks",
                          "status",
                          "file",
                          "note"};
  std::size_t fair_pairs = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto& record = records[i];
    std::string note = disqualified(record);
    std::string unlike;
    std::string differently;
    double ratio = record::kMissing;
    Scaling scaling;
    if (note.empty()) {
      scaling = scaling_of(record, records);
      fair_pairs += scaling.kind.empty() ? 0U : 1U;
      for (std::size_t j = 0; j < records.size(); ++j) {
        const auto& other = records[j];
        if (!may_meet(record, other)) {
          continue;
        }
        if (j == i && !unlike.empty()) {
          // An earlier row was met and is unlike this one: it stands for itself only if later rows are compared with it.
          if (has_later_match(records, i)) {
            ratio = 1;
          }
          break;
        }
        const auto differences = differing_keys(record, other);
        if (differences.empty()) {
          ratio = record.summary.front().samples_per_s / other.summary.front().samples_per_s;
          fair_pairs += j < i ? 1U : 0U;
          differently = run_differently(record, other);
          break;  // the first comparable row of equal world_size, possibly this one
        }
        unlike =
            fmt::format("unlike {}: {}", std::filesystem::path(other.path).filename().string(), base::join(differences, ", "));
      }
    }
    const bool without_ratio = note.empty() && std::isnan(ratio);
    if (note.empty()) {
      note = unlike;  // beside a ratio it says with which rows this one was not compared
    }
    if (without_ratio || !disqualified(record).empty()) {
      result.reasons.push_back(fmt::format("{}: {}", record.path, note));
    }
    // A ratio from times that still drift is shown with the warning beside it.
    const bool drifts = !std::isnan(ratio) && !record.summary.empty() && record.summary.front().steady == 0;
    for (const std::string& before : {differently, std::string(drifts ? "not steady" : "")}) {
      note = before + (before.empty() || note.empty() ? "" : "; ") + note;
    }
    result.table.rows.push_back(make_row(record, ratio, scaling, note));
  }
  result.any_fair_pair = records.size() < 2 || fair_pairs > 0;
  if (!result.any_fair_pair && result.reasons.empty()) {
    result.reasons.emplace_back("these records: no two share preset and rank count, or differ in rank count alone");
  }
  return result;
}

TextTable memory_table(const std::vector<Record>& records) {
  constexpr std::array<std::string_view, 10> kCategories{"parameters", "gradients", "optimizer_state", "offloaded",
                                                         "gathered",   "buckets",   "activations",     "workspace",
                                                         "other",      "total"};
  TextTable table;
  table.columns = {"preset", "technique", "world_size"};
  for (const auto category : kCategories) {
    table.columns.push_back(fmt::format("{}_bytes", category));
  }
  table.columns.emplace_back("file");
  for (const auto& record : records) {
    std::vector<Cell> row{record.attributes.preset, record.attributes.technique, record.attributes.world_size};
    for (const auto category : kCategories) {
      std::int64_t most = -1;
      for (const auto& memory : record.memory) {
        if (memory.phase.str() == "run" && memory.category.str() == category) {
          most = std::max(most, memory.peak_bytes);
        }
      }
      if (most < 0) {
        row.emplace_back(record::kMissing);
      } else {
        row.emplace_back(most);
      }
    }
    row.emplace_back(std::filesystem::path(record.path).filename().string());
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace shardmark::analysis
