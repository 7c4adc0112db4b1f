// What may be compared with what: fairness key by key, ratios, efficiency.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/compare.hpp"
#include "record/rows.hpp"

namespace shardmark::analysis {
namespace {

using record::Record;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Run {
  std::string file = "a.h5";
  std::string technique = "ddp";
  std::int64_t world_size = 2;
  std::int64_t rows_per_rank = 32;
  double samples_per_s = 1000;
};

/// A complete record whose checks passed.
Record make(const Run& run) {
  Record record;
  record.path = "folder/" + run.file;
  record.attributes.status = "complete";
  record.attributes.preset = "mlp";
  record.attributes.technique = run.technique;
  record.attributes.world_size = run.world_size;
  record.config_keys = {{"workload.name", "\"mlp\"", "preset"}, {"optimizer.lr", "0.001", "preset"}};
  for (std::int64_t step = 0; step < 2; ++step) {
    for (std::int64_t rank = 0; rank < run.world_size; ++rank) {
      record::StepRow row;
      row.step = step;
      row.rank = rank;
      row.samples = run.rows_per_rank;
      record.steps.push_back(row);
    }
  }
  record.checks.resize(1);
  record.checks[0].passed = 1;
  record.summary.resize(1);
  record.summary[0].parameters = 100;
  record.summary[0].warmed_up = 1;
  record.summary[0].steady = 1;
  record.summary[0].samples_per_s = run.samples_per_s;
  record.summary[0].samples_per_s_per_gpu = run.samples_per_s / static_cast<double>(run.world_size);
  return record;
}

void set_key(Record& record, const std::string& key, const std::string& value) {
  const auto found = std::ranges::find_if(record.config_keys, [&](const auto& row) { return row.key.str() == key; });
  if (found == record.config_keys.end()) {
    record.config_keys.push_back({key, value, "--set"});
  } else {
    found->value = value;
  }
}

Cell cell(const Comparison& comparison, std::size_t row, const std::string& column) {
  const auto& columns = comparison.table.columns;
  return comparison.table.rows.at(row).at(static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin()));
}
double number(const Comparison& comparison, std::size_t row, const std::string& column) {
  return std::get<double>(cell(comparison, row, column));
}
std::string text(const Comparison& comparison, std::size_t row, const std::string& column) {
  return std::get<std::string>(cell(comparison, row, column));
}

/// Refused as unlike, with `name` and nothing else said to differ.
void expect_unlike(const Record& a, const Record& b, const std::string& name) {
  EXPECT_THAT(differing_keys(a, b), ElementsAre(name));
  const auto result = compare({a, b});
  EXPECT_FALSE(result.any_fair_pair) << name;
  EXPECT_EQ(number(result, 0, "ratio"), 1.0) << name;
  EXPECT_TRUE(std::isnan(number(result, 1, "ratio"))) << name;
  EXPECT_EQ(text(result, 1, "note"), "unlike a.h5: " + name);
  EXPECT_THAT(result.reasons, ElementsAre("folder/b.h5: unlike a.h5: " + name));
}

class FairKeys : public ::testing::TestWithParam<const char*> {};

TEST_P(FairKeys, DifferenceIsRefusedByName) {
  const Record a = make({});
  Record b = make({.file = "b.h5"});
  set_key(b, GetParam(), "other");
  expect_unlike(a, b, GetParam());
  Record c = make({.file = "b.h5"});  // a key that one record lacks is a difference too
  std::erase_if(c.config_keys, [](const auto& row) { return row.key.str() == GetParam(); });
  Record with = a;
  set_key(with, GetParam(), "value");
  expect_unlike(with, c, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, FairKeys,
                         ::testing::Values("workload.name", "model.checkpoint", "model.variant", "model.dropout",
                                           "model.input_width", "model.width", "model.layers", "model.classes", "model.blocks",
                                           "model.heads", "model.mlp_width", "model.users", "model.movies", "data.path",
                                           "data.shuffle", "data.seed", "precision.parameters", "precision.compute",
                                           "precision.reduce", "precision.state", "precision.frozen", "optimizer.name",
                                           "optimizer.lr", "optimizer.betas", "optimizer.eps", "optimizer.weight_decay",
                                           "optimizer.decay", "optimizer.momentum", "optimizer.clip_norm", "numerics.seed",
                                           "numerics.on_nonfinite"));

TEST(Fairness, DefinitionVersionBatchAndModelSize) {
  const Record a = make({});
  Record b = make({.file = "b.h5"});
  b.attributes.definition_version = 2;
  expect_unlike(a, b, "definition_version");
  expect_unlike(a, make({.file = "b.h5", .rows_per_rank = 31}), "global batch");
  b = make({.file = "b.h5"});
  b.summary[0].parameters = 101;
  expect_unlike(a, b, "model size");
}

TEST(Fairness, ATracedRunMeetsTracedRunsOnly) {
  const Record plain = make({});
  Record off = make({.file = "b.h5"});
  set_key(off, "output.trace", "false");
  EXPECT_THAT(differing_keys(plain, off), IsEmpty());
  Record traced = make({.file = "b.h5"});
  set_key(traced, "output.trace", "true");
  EXPECT_THAT(differing_keys(traced, traced), IsEmpty());
  expect_unlike(plain, traced, "output.trace");
}

TEST(Fairness, AllDifferencesAreNamed) {
  Record b = make({.file = "b.h5", .rows_per_rank = 16});
  set_key(b, "optimizer.lr", "0.5");
  set_key(b, "data.seed", "7");
  EXPECT_THAT(differing_keys(make({}), b), ElementsAre("data.seed", "optimizer.lr", "global batch"));
  EXPECT_THAT(text(compare({make({}), b}), 1, "note"), HasSubstr("data.seed, optimizer.lr, global batch"));
}

TEST(Fairness, TechniqueAndHowItIsRunMayDiffer) {
  Record b = make({.file = "b.h5", .technique = "zero1", .samples_per_s = 1500});
  for (const char* key : {"technique.name", "technique.profile", "measure.steps", "comm.deadline_s"}) {
    set_key(b, key, "other");
  }
  const auto result = compare({make({}), b});
  EXPECT_TRUE(result.any_fair_pair);
  EXPECT_EQ(number(result, 0, "ratio"), 1.0);
  EXPECT_EQ(number(result, 1, "ratio"), 1.5);
  EXPECT_EQ(text(result, 1, "note"), "");
  EXPECT_THAT(result.reasons, IsEmpty());
}

TEST(Fairness, ARatioSaysWhatWasRunDifferently) {
  for (const char* key : {"technique.offload", "technique.bucket_mb", "numerics.reduction", "comm.backend", "comm.check",
                          "model.activation_checkpointing"}) {
    Record a = make({});
    Record b = make({.file = "b.h5", .samples_per_s = 500});
    set_key(a, key, "one");
    set_key(b, key, "other");
    b.summary[0].steady = 0;
    const auto result = compare({a, b, a});
    EXPECT_EQ(number(result, 1, "ratio"), 0.5) << key;
    EXPECT_EQ(text(result, 0, "note"), "");
    EXPECT_EQ(text(result, 1, "note"), std::string("not steady; ") + key + " = other (a.h5: one)");
    EXPECT_EQ(text(result, 2, "note"), "") << "run as the first one was";
    EXPECT_EQ(text(compare({make({}), b}), 1, "note"), "not steady") << "an older record lacks the key";
  }
}

TEST(Fairness, ADriftingRunKeepsItsRatioAndSaysSo) {
  Record b = make({.file = "b.h5", .samples_per_s = 500});
  b.summary[0].steady = 0;
  const auto result = compare({make({}), b});
  EXPECT_EQ(number(result, 1, "ratio"), 0.5);
  EXPECT_EQ(text(result, 0, "note"), "");
  EXPECT_EQ(text(result, 1, "note"), "not steady");
}

TEST(Memory, EachCategoryIsThatOfTheLargestRank) {
  Record a = make({});
  a.memory.resize(4);
  for (std::size_t i = 0; i < a.memory.size(); ++i) {
    a.memory[i].rank = static_cast<std::int64_t>(i % 2);
    a.memory[i].phase = i < 3 ? "run" : "init";
    a.memory[i].category = i == 2 ? "gathered" : "parameters";
    a.memory[i].peak_bytes = static_cast<std::int64_t>(10 * (i + 1));
  }
  const auto table = memory_table({a});
  const auto at = [&](const std::string& column) {
    return table.rows.at(0).at(static_cast<std::size_t>(std::ranges::find(table.columns, column) - table.columns.begin()));
  };
  EXPECT_EQ(std::get<std::int64_t>(at("parameters_bytes")), 20) << "rank 1's of phase run";
  EXPECT_EQ(std::get<std::int64_t>(at("gathered_bytes")), 30);
  EXPECT_TRUE(std::isnan(std::get<double>(at("buckets_bytes")))) << "not in the record";
}

TEST(Disqualified, TakesPartInNoRatio) {
  const std::vector<std::pair<std::string, std::function<void(Record&)>>> cases{
      {"status failed", [](Record& r) { r.attributes.status = "failed"; }},
      {"status stopped", [](Record& r) { r.attributes.status = "stopped"; }},
      {"status interrupted", [](Record& r) { r.attributes.status = "interrupted"; }},
      {"status unknown", [](Record& r) { r.attributes.status = ""; }},
      {"status complete", [](Record& r) { r.partial = true; }},
      {"no summary", [](Record& r) { r.summary.clear(); }},
      {"0 of 1 checks passed", [](Record& r) { r.checks[0].passed = 0; }},
      {"0 of 1 checks passed", [](Record& r) { r.checks[0].passed = -1; }},  // a file without that column
      {"0 of 0 checks passed", [](Record& r) { r.checks.clear(); }},
      {"oversubscribed", [](Record& r) { r.summary[0].oversubscribed = 1; }},
      {"not known whether oversubscribed", [](Record& r) { r.summary[0].oversubscribed = -1; }},
      {"no throughput", [](Record& r) { r.summary[0].samples_per_s = record::kMissing; }},
      {"no throughput", [](Record& r) { r.summary[0].samples_per_s = 0; }},
      {"not warmed up",
       [](Record& r) {
         r.summary[0].samples_per_s = record::kMissing;
         r.summary[0].warmed_up = 0;
       }},
  };
  for (const auto& [why, spoil] : cases) {
    Record bad = make({.file = "bad.h5"});
    spoil(bad);
    for (const auto& records : {std::vector{bad, make({})}, std::vector{make({}), bad}}) {
      const auto result = compare(records);
      const std::size_t at = records[0].path == bad.path ? 0 : 1;
      EXPECT_FALSE(result.any_fair_pair) << why;
      EXPECT_TRUE(std::isnan(number(result, at, "ratio"))) << why;
      EXPECT_TRUE(std::isnan(number(result, at, "efficiency"))) << why;
      EXPECT_EQ(text(result, at, "note"), why);
      EXPECT_EQ(number(result, 1 - at, "ratio"), 1.0) << "the good one stands for itself";
    }
  }
}

TEST(Ratios, OnlyAtEqualWorldSize) {
  const auto result = compare({make({.world_size = 1, .rows_per_rank = 64}), make({.file = "b.h5", .samples_per_s = 1800}),
                               make({.file = "c.h5", .technique = "zero1", .samples_per_s = 900})});
  EXPECT_EQ(number(result, 0, "ratio"), 1.0);
  EXPECT_EQ(number(result, 1, "ratio"), 1.0) << "not 1.8 over one rank";
  EXPECT_EQ(number(result, 2, "ratio"), 0.5);
}

TEST(Ratios, OnlyWithinAPreset) {
  Record b = make({.file = "b.h5", .samples_per_s = 2000});
  b.attributes.preset = "mlp-wide";
  const auto result = compare({make({}), b});
  EXPECT_EQ(number(result, 1, "ratio"), 1.0);
  EXPECT_FALSE(result.any_fair_pair);
  EXPECT_THAT(result.reasons, ElementsAre(HasSubstr("no two share preset and rank count")));
}

TEST(Ratios, ALaterRowFindsItsOwnKind) {
  Record b = make({.file = "b.h5"});
  set_key(b, "optimizer.lr", "0.5");
  Record c = b;
  c.path = "folder/c.h5";
  c.summary[0].samples_per_s = 3000;
  const auto result = compare({make({}), b, c});
  EXPECT_TRUE(result.any_fair_pair) << "b and c are alike";
  EXPECT_EQ(number(result, 1, "ratio"), 1.0) << "the first of its kind, not compared with a later one";
  EXPECT_EQ(number(result, 2, "ratio"), 3.0);
}

TEST(Ratios, OneRecordNeedsNoPair) {
  const auto result = compare({make({})});
  EXPECT_TRUE(result.any_fair_pair);
  EXPECT_EQ(number(result, 0, "ratio"), 1.0);
}

TEST(Efficiency, WeakAtEqualRowsARank) {
  const auto result = compare({make({.world_size = 4, .samples_per_s = 3000}), make({.file = "b.h5", .samples_per_s = 1800}),
                               make({.file = "c.h5", .technique = "single", .world_size = 1, .samples_per_s = 1000})});
  EXPECT_TRUE(result.any_fair_pair);
  EXPECT_EQ(number(result, 0, "efficiency"), 750.0 / 1000.0) << "against the fewest ranks, `single` counts";
  EXPECT_EQ(number(result, 1, "efficiency"), 900.0 / 1000.0);
  EXPECT_EQ(text(result, 0, "scaling"), "weak");
  EXPECT_EQ(text(result, 1, "scaling"), "weak");
  EXPECT_TRUE(std::isnan(number(result, 2, "efficiency"))) << "there is nothing smaller";
  EXPECT_EQ(text(result, 2, "scaling"), "");
}

TEST(Efficiency, StrongAtEqualGlobalBatch) {
  const auto result = compare({make({.world_size = 1, .rows_per_rank = 64, .samples_per_s = 1000}),
                               make({.file = "b.h5", .world_size = 4, .rows_per_rank = 16, .samples_per_s = 2000})});
  EXPECT_EQ(number(result, 1, "efficiency"), 0.5);
  EXPECT_EQ(text(result, 1, "scaling"), "strong");
}

TEST(Efficiency, EmptyWhereNeitherBatchIsEqual) {
  const auto result =
      compare({make({.world_size = 1, .rows_per_rank = 64}), make({.file = "b.h5", .world_size = 4, .rows_per_rank = 20})});
  EXPECT_TRUE(std::isnan(number(result, 1, "efficiency")));
  EXPECT_EQ(text(result, 1, "scaling"), "");
  EXPECT_FALSE(result.any_fair_pair);
}

TEST(Efficiency, EmptyAgainstAnotherTechniqueOrOtherSettings) {
  const Record one = make({.technique = "zero1", .world_size = 1});
  EXPECT_TRUE(std::isnan(number(compare({one, make({.file = "b.h5"})}), 1, "efficiency")));
  Record other = make({.world_size = 1});
  set_key(other, "optimizer.lr", "0.5");
  EXPECT_TRUE(std::isnan(number(compare({other, make({.file = "b.h5"})}), 1, "efficiency")));
}

TEST(Columns, CarryTheRecordsNumbers) {
  Record record = make({});
  record.summary[0].peak_memory_bytes = 12345;
  record.summary[0].loss_final = 0.25;
  record.summary[0].quality_name = "accuracy";
  const auto result = compare({record});
  EXPECT_EQ(result.table.columns.size(), result.table.rows.at(0).size());
  EXPECT_EQ(text(result, 0, "technique"), "ddp");
  EXPECT_EQ(std::get<std::int64_t>(cell(result, 0, "world_size")), 2);
  EXPECT_EQ(std::get<std::int64_t>(cell(result, 0, "peak_memory_bytes")), 12345);
  record.summary[0].peak_memory_bytes = -1;  // a peer on a CPU
  EXPECT_TRUE(std::isnan(number(compare({record}), 0, "peak_memory_bytes"))) << "missing, not a number of bytes";
  EXPECT_EQ(number(result, 0, "samples_per_s_per_gpu"), 500.0);
  EXPECT_EQ(number(result, 0, "loss_final"), 0.25);
  EXPECT_EQ(text(result, 0, "quality_name"), "accuracy");
  EXPECT_EQ(text(result, 0, "checks"), "1/1");
  EXPECT_EQ(text(result, 0, "file"), "a.h5");
}

}  // namespace
}  // namespace shardmark::analysis
