// The Chrome trace of a record: names, nesting, threads of collectives, rounding, what is missing.

#include "analysis/trace_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace shardmark::analysis {
namespace {

using nlohmann::json;
using record::Record;
using record::TraceRow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TraceRow compute(const std::string& name, double start_s, double duration_s, std::int64_t rank = 0) {
  TraceRow row;
  row.rank = rank;
  row.lane = "compute";
  row.category = "phase";
  row.name = name;
  row.step = 3;
  row.start_s = start_s;
  row.duration_s = duration_s;
  return row;
}

TraceRow collective(const std::string& name, double start_s, double duration_s) {
  TraceRow row = compute(name, start_s, duration_s);
  row.lane = "communication";
  row.category = "collective";
  row.purpose = "gradient";
  row.group = "world";
  row.dtype = "fp32";
  row.tag = 2;
  row.sequence = 11;
  row.bytes = 4096;
  return row;
}

json exported(const Record& record) {
  std::ostringstream out;
  write_chrome_trace(out, record);
  return json::parse(out.str());
}

json events(const Record& record, const std::string& phase) {
  const json document = exported(record);
  json found = json::array();
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == phase) {
      found.push_back(event);
    }
  }
  return found;
}

Record record_of(std::vector<TraceRow> rows) {
  Record record;
  record.path = "run.h5";
  record.attributes.world_size = 1;
  record.attributes.status = "complete";
  record.trace = std::move(rows);
  record.trace_ranks.resize(1);
  record.trace_ranks[0].clock_uncertainty_s = 0;
  return record;
}

TEST(TraceExport, AnEventCarriesWhatTheRecordHas) {
  const auto found = events(record_of({compute("forward \"a\"", 1.5, 0.25), collective("all_reduce", 2, 0.5)}), "X");
  EXPECT_EQ(found[0], json::parse(R"({"ph": "X", "name": "forward \"a\"", "cat": "phase", "pid": 1, "tid": 1, "ts": 1500000.0,
                                      "dur": 250000.0, "args": {"step": 3}})"));
  EXPECT_EQ(found[1], json::parse(R"({"ph": "X", "name": "all_reduce", "cat": "collective", "pid": 1, "tid": 2, "ts": 2000000.0,
                                      "dur": 500000.0, "args": {"step": 3, "purpose": "gradient", "group": "world",
                                      "dtype": "fp32", "bytes": 4096, "tag": 2, "sequence": 11}})"));
}

TEST(TraceExport, ProcessesAndThreadsAreNamed) {
  Record record = record_of({compute("a", 0, 1), compute("b", 0, 1, 1)});
  record.ranks.resize(2);
  record.ranks[1].rank = 1;
  record.ranks[1].host = "node7";
  std::vector<std::string> lines;
  for (const auto& event : events(record, "M")) {
    const auto& value = event["args"].contains("name") ? event["args"]["name"] : event["args"]["sort_index"];
    lines.push_back(event["name"].get<std::string>() + " " + event["pid"].dump() + "." + event["tid"].dump() + " " +
                    value.dump());
  }
  // process.thread: viewers take process 0 for the idle one.
  EXPECT_THAT(lines,
              ElementsAre(R"(process_name 1.1 "rank 0")", "process_sort_index 1.1 0", R"(thread_name 1.1 "compute")",
                          "thread_sort_index 1.1 1", R"(thread_name 1.2 "communication")", "thread_sort_index 1.2 2",
                          R"(process_name 2.1 "rank 1 on node7")", "process_sort_index 2.1 1", R"(thread_name 2.1 "compute")",
                          "thread_sort_index 2.1 1", R"(thread_name 2.2 "communication")", "thread_sort_index 2.2 2"));
}

TEST(TraceExport, CollectivesUnderWayTogetherGetThreadsOfTheirOwn) {
  const Record record = record_of(
      {collective("a", 0, 3), collective("b", 1, 1), collective("c", 2, 2), collective("d", 2.5, 1), collective("e", 4, 1)});
  std::vector<std::int64_t> threads;
  for (const auto& event : events(record, "X")) {
    threads.push_back(event["tid"]);
  }
  EXPECT_THAT(threads, ElementsAre(2, 3, 3, 4, 2)) << "c starts when b ends; e when all are over but none later";
  EXPECT_THAT(exported(record).dump(), HasSubstr("\"communication 3\""));
}

TEST(TraceExport, RoundingLeavesNoEventOutsideTheOneAroundIt) {
  const auto found = events(record_of({compute("outer", 1, 0.001), compute("inner", 1.0005, 0.0005 + 3e-9)}), "X");
  EXPECT_EQ(found[1]["dur"], 500.0) << "3 ns longer in the record: two readings at half a year of uptime differ by as much";
  const auto wrong = events(record_of({compute("outer", 1, 0.001), compute("inner", 1.0005, 0.0005 + 3e-6)}), "X");
  EXPECT_EQ(wrong[1]["dur"], 503.0) << "a real overlap is shown, not hidden";
}

TEST(TraceExport, TimesAreExactToTheNanosecondAndNeverNegative) {
  const auto found = events(record_of({compute("early", -2e-6, 1e-6), compute("late", 123456.000000789, 1e-9)}), "X");
  EXPECT_EQ(found[0]["ts"], 0.0) << "hosts' clocks: the earliest is the start";
  EXPECT_EQ(found[1]["ts"], 123456000002.789);
  EXPECT_EQ(found[1]["dur"], 0.001);
}

TEST(TraceExport, WhatWasNotOverLastsToTheEnd) {
  const auto found =
      events(record_of({compute("cut", 1, record::kMissing), compute("last", 2, 3), compute("of another", 0, 9, 1)}), "X");
  EXPECT_EQ(found[0]["dur"], 4e6);
  EXPECT_EQ(found[0]["args"]["unfinished"], true);
  EXPECT_FALSE(found[1]["args"].contains("unfinished"));
}

TEST(TraceExport, ARecordWithoutEventsIsRefusedWithTheReason) {
  EXPECT_NO_THROW(require_trace(record_of({compute("a", 0, 1)})));
  Record none = record_of({});
  EXPECT_THAT([&] { require_trace(none); }, ::testing::ThrowsMessage<base::ConfigError>(
                                                ::testing::AllOf(HasSubstr("run.h5"), HasSubstr("--set output.trace=true"))));
  none.config_keys = {{"output.trace", "true", "--set"}};
  none.attributes.status = "interrupted";
  EXPECT_THAT([&] { require_trace(none); },
              ::testing::ThrowsMessage<base::ConfigError>(HasSubstr("ended (interrupted) before its events were written")));
}

TEST(TraceExport, WarnsOfMissingRanksDroppedEventsAndUnsureClocks) {
  Record record = record_of({compute("a", 0, 1)});
  EXPECT_THAT(trace_warnings(record), IsEmpty());
  record.attributes.world_size = 4;
  record.attributes.status = "failed";
  record.trace_ranks[0].num_events = 10;
  record.trace_ranks[0].num_dropped = 5;
  record.trace_ranks[0].clock_uncertainty_s = 2e-6;
  EXPECT_THAT(trace_warnings(record),
              ElementsAre(HasSubstr("1 of 4 ranks: status failed"), HasSubstr("rank 0: 10 events were kept and 5 dropped"),
                          HasSubstr("within 2 us")));
  record.trace_ranks.push_back({1, 10, 0, 0, 1e-6});
  EXPECT_THAT(trace_warnings(record), ::testing::Contains(HasSubstr("within 2 us"))) << "the worst counts, wherever it stands";
}

}  // namespace
}  // namespace shardmark::analysis
