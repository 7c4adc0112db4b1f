// The four forms of a table, with texts that each form has to escape.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/table.hpp"
#include "base/error.hpp"

namespace shardmark::analysis {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TextTable one_text(const std::string& text) {
  return {{"name", "value"}, {{text, 2.5}}};
}

TEST(Table, AlignsForTerminals) {
  const TextTable table{{"name", "count", "time_s"}, {{"a", std::int64_t{12}, 0.5}, {"longer", std::int64_t{-1}, kNan}}};
  EXPECT_EQ(render(table, Format::table),
            "name    count  time_s\n"
            "a          12     0.5\n"
            "longer     -1       -\n");
}

TEST(Table, JsonHasRowsAndVerdict) {
  const TextTable table{{"b", "a"}, {{"x", std::int64_t{9007199254740993}}, {"y", kNan}}};
  const auto parsed = nlohmann::json::parse(render(table, Format::json, "no change"));
  EXPECT_EQ(parsed.at("verdict"), "no change");
  EXPECT_EQ(parsed.at("rows").at(0).at("a"), std::int64_t{9007199254740993}) << "whole numbers stay whole";
  EXPECT_TRUE(parsed.at("rows").at(1).at("a").is_null());
  const auto text = render(table, Format::json);
  EXPECT_LT(text.find("\"b\""), text.find("\"a\"")) << "columns keep their order";
  EXPECT_FALSE(nlohmann::json::parse(text).contains("verdict"));
  EXPECT_EQ(nlohmann::json::parse(render({{"a"}, {}}, Format::json)).at("rows").size(), 0U);
}

TEST(Table, JsonKeepsEveryDigit) {
  const double value = 0.1 + 0.2;
  const auto parsed = nlohmann::json::parse(render({{"a"}, {{value}}}, Format::json));
  EXPECT_EQ(parsed.at("rows").at(0).at("a").get<double>(), value);
}

TEST(Table, JsonTakesTextsThatAreNoUtf8) {
  // The first byte of a two-byte character at the end, a byte that never occurs, and a character itself.
  for (const std::string broken : {"caf\xc3", "\xff text", "\xe2\x82"}) {
    const auto parsed = nlohmann::json::parse(render(one_text(broken), Format::json, broken));
    EXPECT_THAT(parsed.at("rows").at(0).at("name").get<std::string>(), ::testing::HasSubstr("\ufffd"));
    EXPECT_THAT(parsed.at("verdict").get<std::string>(), ::testing::HasSubstr("\ufffd"));
  }
  const std::string good = "caf\u00e9 \"quoted\" \\ \n\t";
  EXPECT_EQ(nlohmann::json::parse(render(one_text(good), Format::json)).at("rows").at(0).at("name"), good);
}

TEST(Table, CsvQuotes) {
  EXPECT_EQ(render(one_text("plain text"), Format::csv), "name,value\nplain text,2.5\n");
  EXPECT_EQ(render(one_text("a,b"), Format::csv), "name,value\n\"a,b\",2.5\n");
  EXPECT_EQ(render(one_text("say \"x\""), Format::csv), "name,value\n\"say \"\"x\"\"\",2.5\n");
  EXPECT_EQ(render(one_text("two\nlines"), Format::csv), "name,value\n\"two\nlines\",2.5\n");
  EXPECT_EQ(render(one_text("two\rlines"), Format::csv), "name,value\n\"two\rlines\",2.5\n");
  EXPECT_EQ(render({{"a,b", "c"}, {{"", kNan}}}, Format::csv), "\"a,b\",c\n,\n") << "missing is empty";
}

TEST(Table, CsvKeepsEveryDigit) {
  EXPECT_EQ(render({{"a"}, {{0.1 + 0.2}}}, Format::csv), "a\n0.30000000000000004\n");
}

TEST(Table, MarkdownEscapesWhatEndsACell) {
  EXPECT_EQ(render(one_text("plain"), Format::md), "| name | value |\n|---|---|\n| plain | 2.5 |\n");
  EXPECT_EQ(render(one_text("a|b"), Format::md), "| name | value |\n|---|---|\n| a\\|b | 2.5 |\n");
  // A backslash in front of a bar would take the bar's own away.
  EXPECT_EQ(render(one_text("a\\|b"), Format::md), "| name | value |\n|---|---|\n| a\\\\\\|b | 2.5 |\n");
  EXPECT_EQ(render(one_text("two\nlines\r\nand\rmore"), Format::md),
            "| name | value |\n|---|---|\n| two<br>lines<br>and<br>more | 2.5 |\n");
  EXPECT_EQ(render({{"a|b"}, {{""}}}, Format::md), "| a\\|b |\n|---|\n| - |\n");
}

TEST(Table, TerminalRowsStayRows) {
  EXPECT_EQ(render(one_text("two\nlines"), Format::table),
            "name        value\n"
            "two\\nlines    2.5\n");
}

TEST(Table, LinesDoNotEndInBlanks) {
  EXPECT_EQ(render({{"a", "b"}, {{"x", "a long text"}, {"longer", "y"}}}, Format::table),
            "a       b\n"
            "x       a long text\n"
            "longer  y\n");
}

TEST(Table, FormatsByName) {
  EXPECT_EQ(parse_format("table"), Format::table);
  EXPECT_EQ(parse_format("json"), Format::json);
  EXPECT_EQ(parse_format("csv"), Format::csv);
  EXPECT_EQ(parse_format("md"), Format::md);
  EXPECT_THAT([] { static_cast<void>(parse_format("xml")); },
              ::testing::ThrowsMessage<base::ConfigError>(
                  ::testing::AllOf(::testing::HasSubstr("xml"), ::testing::HasSubstr("table, json, csv, md"))));
}

}  // namespace
}  // namespace shardmark::analysis
