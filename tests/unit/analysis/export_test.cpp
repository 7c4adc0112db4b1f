// A record as CSV and JSON: every table, missing numbers, awkward texts.

#include "analysis/export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "record/schema.hpp"

namespace shardmark::analysis {
namespace {

using nlohmann::json;
using record::Record;
using ::testing::StartsWith;

Record example() {
  Record record;
  record.attributes.status = "failed";
  record.attributes.error = "a \"b\", c\nd \xe2\x82";
  record.attributes.world_size = 2;
  record.config_toml = "[model]\nwidth = 64\n";
  record.steps.resize(2);
  record.steps[1].step = 1;
  record.steps[1].loss = 0.1;
  record.checks.resize(1);
  record.checks[0].name = "a,b";
  return record;
}

json as_json(const Record& record) {
  std::ostringstream out;
  write_json(out, record);
  return json::parse(out.str());
}

std::string as_csv(const Record& record, const std::string& table) {
  std::ostringstream out;
  write_csv(out, record, table);
  return out.str();
}

TEST(Json, HasEveryAttributeTableAndColumn) {
  const auto document = as_json(example());
  EXPECT_EQ(document["partial"], false);
  EXPECT_EQ(document["config"], "[model]\nwidth = 64\n");
  EXPECT_EQ(document["attributes"].size(), record::attributes().size());
  for (const auto& attribute : record::attributes()) {
    EXPECT_TRUE(document["attributes"].contains(attribute.name)) << attribute.name;
  }
  EXPECT_EQ(document["attributes"]["error"], "a \"b\", c\nd \xef\xbf\xbd") << "half a character is U+FFFD";
  EXPECT_EQ(document["tables"].size(), record::tables().size());
  for (const auto& table : record::tables()) {
    Record one = example();
    one.ranks.resize(1), one.environment.resize(1), one.config_keys.resize(1), one.memory.resize(1), one.collectives.resize(1);
    one.summary.resize(1), one.telemetry.resize(1), one.health.resize(1), one.transport.resize(1), one.trace.resize(1);
    one.trace_ranks.resize(1), one.comm.resize(1), one.evaluations.resize(1);
    const auto rows = as_json(one)["tables"][table.name];
    ASSERT_FALSE(rows.empty()) << table.name;
    EXPECT_EQ(rows[0].size(), table.columns.size()) << table.name;
    for (const auto& column : table.columns) {
      EXPECT_TRUE(rows[0].contains(column.name)) << table.name << "." << column.name;
    }
  }
}

TEST(Json, MissingNumbersAreNull) {
  const auto rows = as_json(example())["tables"]["steps"];
  EXPECT_TRUE(rows[0]["loss"].is_null());
  EXPECT_EQ(rows[1]["loss"], 0.1);
  EXPECT_EQ(rows[1]["step"], 1);
}

TEST(Json, SaysWhenTheRecordIsPartial) {
  Record record = example();
  record.partial = true;
  EXPECT_EQ(as_json(record)["partial"], true);
}

TEST(Csv, HasALineOfNamesAndMissingNumbersAreEmpty) {
  const auto text = as_csv(example(), "steps");
  EXPECT_THAT(text, StartsWith("block,step,rank,timed,data_s"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_NE(text.find("-1,1,0,0,0,0,0,0,0,0,0.1,,0,"), std::string::npos) << text;
  EXPECT_EQ(as_csv(example(), "checks"), "name,expected,found,tolerance,passed\n\"a,b\",,,0,0\n");
}

TEST(Csv, AttributesStandOneALine) {
  std::ostringstream out;
  write_attributes_csv(out, example());
  EXPECT_THAT(out.str(), StartsWith("name,value\nschema_version,1\n"));
  EXPECT_NE(out.str().find("\nworld_size,2\n"), std::string::npos);
}

}  // namespace
}  // namespace shardmark::analysis
