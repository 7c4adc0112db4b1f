// Rankings and ratios of planted records on both sides.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "analysis/compare.hpp"
#include "analysis/transfer.hpp"
#include "record/rows.hpp"

namespace shardmark::analysis {
namespace {

using record::Record;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Run {
  std::string technique = "ddp";
  double samples_per_s = 1000;
  double spread = 1;  // half the width of its interval
  std::string lr = "0.001";
  std::string preset = "lm10m";
};

Record make(const Run& run, const std::string& peer) {
  Record record;
  record.path = (peer.empty() ? "ours-" : "peer-") + run.technique + ".h5";
  record.attributes.status = "complete";
  record.attributes.preset = run.preset;
  record.attributes.technique = run.technique;
  record.attributes.world_size = 2;
  record.config_keys = {{"optimizer.lr", run.lr, "preset"}};
  if (!peer.empty()) {
    record.config_keys.push_back({"peer", "\"" + peer + "\"", "scripts/peers/train.py"});
  } else {
    const std::string profile = run.technique == "fsdp" ? "fsdp2" : run.technique == "ddp" ? "native" : "deepspeed";
    record.config_keys.push_back({"technique.profile", "\"" + profile + "\"", "--set"});
  }
  record.checks.resize(1);
  record.checks[0].passed = 1;
  record.summary.resize(1);
  record.summary[0].warmed_up = 1;
  record.summary[0].oversubscribed = 0;
  record.summary[0].samples_per_s = run.samples_per_s;
  record.summary[0].throughput_low = run.samples_per_s - run.spread;
  record.summary[0].throughput_high = run.samples_per_s + run.spread;
  return record;
}

std::vector<Record> both(const std::vector<Run>& ours, const std::vector<Run>& peers) {
  std::vector<Record> records;
  for (const auto& run : ours) {
    records.push_back(make(run, ""));
  }
  for (const auto& run : peers) {
    records.push_back(make(run, run.technique == "ddp" || run.technique == "fsdp" ? "torch 2.14.1" : "deepspeed 0.19.8"));
  }
  return records;
}

Cell cell(const Transfer& result, std::size_t row, const std::string& column) {
  const auto& columns = result.table.columns;
  return result.table.rows.at(row).at(static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin()));
}
std::string text(const Transfer& result, std::size_t row, const std::string& column) {
  return std::get<std::string>(cell(result, row, column));
}
double number(const Transfer& result, std::size_t row, const std::string& column) {
  return std::get<double>(cell(result, row, column));
}
std::int64_t whole(const Transfer& result, std::size_t row, const std::string& column) {
  return std::get<std::int64_t>(cell(result, row, column));
}

TEST(Transfer, SameOrderAndSameRatiosAtOtherSpeeds) {
  const auto result = transfer(both({{.technique = "zero3", .samples_per_s = 500}, {.samples_per_s = 1000}},
                                    {{.samples_per_s = 200}, {.technique = "zero3", .samples_per_s = 100}}));
  ASSERT_EQ(result.table.rows.size(), 2U);
  EXPECT_EQ(result.verdict, "lm10m on 2 ranks: ranking transfers (1 pairs apart on both sides); ratios to ddp agree");
  EXPECT_EQ(text(result, 1, "technique"), "zero3");
  EXPECT_EQ(text(result, 1, "peer"), "deepspeed 0.19.8");
  EXPECT_EQ(whole(result, 1, "rank_shardmark"), 2);
  EXPECT_EQ(whole(result, 1, "rank_peer"), 2);
  EXPECT_DOUBLE_EQ(number(result, 1, "ratio_shardmark"), 0.5);
  EXPECT_DOUBLE_EQ(number(result, 1, "ratio_peer"), 0.5);
  EXPECT_THAT(result.reasons, IsEmpty());
}

TEST(Transfer, AnotherOrderIsNamed) {
  const auto result = transfer(both({{.samples_per_s = 1000}, {.technique = "fsdp", .samples_per_s = 900}},
                                    {{.samples_per_s = 200}, {.technique = "fsdp", .samples_per_s = 300}}));
  EXPECT_EQ(text(result, 0, "transfer"), "ranking does not transfer: ddp before fsdp here only");
  EXPECT_EQ(whole(result, 0, "rank_shardmark"), 1);
  EXPECT_EQ(whole(result, 0, "rank_peer"), 2);
  EXPECT_EQ(text(result, 1, "ratios_agree"), "no");
  EXPECT_THAT(result.verdict, HasSubstr("ratios to ddp differ: fsdp"));
}

TEST(Transfer, SameOrderWithOtherRatios) {
  const auto result = transfer(both({{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = 900}},
                                    {{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = 500}}));
  EXPECT_EQ(result.verdict, "lm10m on 2 ranks: ranking transfers (1 pairs apart on both sides); ratios to ddp differ: zero1");
}

TEST(Transfer, RatiosThatAreNotToldApartAreNotSaidToAgree) {
  // Ours 0.9, the peer's anything from 0.5 to 1.3.
  const auto result = transfer(both({{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = 900}},
                                    {{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = 900, .spread = 400}}));
  EXPECT_EQ(text(result, 0, "ratios_agree"), "yes") << "ddp's ratio to itself is 1";
  EXPECT_EQ(text(result, 1, "ratios_agree"), "undecided");
  EXPECT_THAT(result.verdict, HasSubstr("ratios to ddp are undecided: zero1"));
}

TEST(Transfer, RatiosWithinAQuarterAgreeThoughTheyAreToldApart) {
  const auto at = [&](double rate) {
    return text(transfer(both({{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = 1000}},
                              {{.samples_per_s = 1000}, {.technique = "zero1", .samples_per_s = rate}})),
                1, "ratios_agree");
  };
  EXPECT_EQ(at(840), "yes");
  EXPECT_EQ(at(1200), "yes");
  EXPECT_EQ(at(780), "no");
  EXPECT_EQ(at(1300), "no");
}

TEST(Transfer, WhatIsNotApartDecidesNothing) {
  const auto result =
      transfer(both({{.samples_per_s = 1000, .spread = 60}, {.technique = "fsdp", .samples_per_s = 900, .spread = 60}},
                    {{.samples_per_s = 200}, {.technique = "fsdp", .samples_per_s = 300}}));
  EXPECT_EQ(text(result, 0, "transfer"), "undecided");
}

TEST(Transfer, OfSeveralRecordsTheMedianAndTheRangeCount) {
  const auto result = transfer(both(
      {{.samples_per_s = 1000}, {.samples_per_s = 1100}, {.samples_per_s = 4000}, {.technique = "fsdp", .samples_per_s = 2200}},
      {{.samples_per_s = 100}, {.technique = "fsdp", .samples_per_s = 200}}));
  EXPECT_DOUBLE_EQ(number(result, 1, "ratio_shardmark"), 2.0);
  EXPECT_EQ(text(result, 0, "transfer"), "undecided") << "2200 lies between 1000 and 4000";
}

TEST(Transfer, OurRecordsStandForAPeerUnderItsProfileOnly) {
  auto records = both({{.samples_per_s = 1000}, {.technique = "fsdp", .samples_per_s = 900}},
                      {{.samples_per_s = 200}, {.technique = "fsdp", .samples_per_s = 300}});
  records[1].config_keys[1].value = "\"native\"";
  const auto result = transfer(records);
  EXPECT_THAT(result.table.rows, IsEmpty());
  EXPECT_THAT(result.reasons, ElementsAre("ours-fsdp.h5: technique.profile is not fsdp2",
                                          "lm10m on 2 ranks: both sides need ddp and one more technique, the same"));
}

TEST(Transfer, DdpUnderDeepSpeedsBucketsIsNotDistributedDataParallel) {
  auto records = both({{}, {.technique = "zero1"}}, {{}, {.technique = "zero1"}});
  records[0].config_keys[1].value = "\"deepspeed\"";
  EXPECT_THAT(transfer(records).reasons, Contains("ours-ddp.h5: technique.profile is neither native nor fsdp2"));
}

TEST(Transfer, UnlikeAndUnfinishedRecordsAreLeftOutByName) {
  auto records = both({{.samples_per_s = 1000}, {.technique = "fsdp", .samples_per_s = 900, .lr = "0.5"}},
                      {{.samples_per_s = 200}, {.technique = "zero2", .samples_per_s = 300}});
  records.back().attributes.status = "failed";
  const auto result = transfer(records);
  EXPECT_THAT(result.reasons, ElementsAre("ours-fsdp.h5: unlike ours-ddp.h5: optimizer.lr", "peer-zero2.h5: status failed",
                                          "lm10m on 2 ranks: both sides need ddp and one more technique, the same"));
}

TEST(Transfer, PresetsAreJudgedApart) {
  auto records = both({{}, {.technique = "fsdp", .samples_per_s = 900}}, {{}, {.technique = "fsdp", .samples_per_s = 900}});
  for (const auto& record : both({{.preset = "mlp"}}, {{.technique = "fsdp", .preset = "mlp"}})) {
    records.push_back(record);
  }
  const auto result = transfer(records);
  EXPECT_EQ(result.table.rows.size(), 2U);
  EXPECT_THAT(result.reasons, ElementsAre(HasSubstr("mlp on 2 ranks: both sides need ddp")));
}

TEST(Compare, ShowsThePeerAndMixesItInRatiosNotInScaling) {
  Record one = make({.technique = "ddp"}, "");
  one.attributes.world_size = 1;
  const Record peer = make({.samples_per_s = 500}, "torch 2.14.1 DDP");
  const auto result = compare({make({}, ""), peer, one});
  const auto& columns = result.table.columns;
  const auto at = [&](std::size_t row, const char* column) {
    return result.table.rows.at(row).at(static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin()));
  };
  EXPECT_EQ(std::get<std::string>(at(0, "peer")), "");
  EXPECT_EQ(std::get<std::string>(at(1, "peer")), "torch 2.14.1 DDP");
  EXPECT_EQ(std::get<double>(at(1, "ratio")), 0.5);
  EXPECT_EQ(std::get<std::string>(at(1, "scaling")), "") << "one rank of ours is not where a peer's scaling starts";
}

}  // namespace
}  // namespace shardmark::analysis
