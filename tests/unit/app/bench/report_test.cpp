// What `comm` prints as it measures, and what it says of the results.

#include "app/bench/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/columns.hpp"
#include "record/schema.hpp"

namespace shardmark::app::bench {
namespace {

using analysis::CommView;
using ::testing::HasSubstr;

record::CommRow row_of(std::int64_t wrong) {
  record::CommRow row;
  row.operation = "reduce_scatter";
  row.group = "node 1000 + node 1001";
  row.backend = "nccl";
  row.ranks = 16384;
  row.dtype = "uint8";
  row.reduction = "sum";
  row.in_place = 1;
  row.message_bytes = std::int64_t{16} << 30;
  row.count = row.message_bytes;
  row.time_p50_s = 9.87654321;
  row.time_p99_s = 12.3456789;
  row.algbw_gb_s = 12345.6;
  row.wrong = wrong;
  return row;
}

TEST(CommTable, LinesAreAsLongAsTheirHeaderAndFit120Columns) {
  for (const auto view : {CommView::sizes, CommView::groups}) {
    const auto header = analysis::comm_header(view);
    EXPECT_LE(header.size() - 1, 120U);
    EXPECT_EQ(analysis::comm_line(row_of(0), view).size(), header.size());
    EXPECT_EQ(analysis::comm_line(record::CommRow{}, view).size(), header.size());
  }
}

TEST(CommTable, TimesAreMicrosecondsAndWhatIsMissingIsADash) {
  const auto line = analysis::comm_line(row_of(-1), CommView::sizes);
  EXPECT_THAT(line, HasSubstr(" 9876543.21 12345678.90  12345.600          -     -\n"));
}

TEST(CommTable, EveryColumnIsExplained) {
  for (const auto view : {CommView::sizes, CommView::groups}) {
    for (const auto& name : analysis::comm_column_names(view)) {
      const auto& stored = record::table("comm").columns;
      const auto& derived = analysis::derived_columns();
      EXPECT_TRUE(std::ranges::find(stored, name, &record::Column::name) != stored.end() ||
                  std::ranges::find(derived, "comm." + name, &record::Column::name) != derived.end())
          << name;
    }
  }
}

std::string printed(analysis::Format format, int num_rows) {
  ::testing::internal::CaptureStdout();
  Report report(format, CommView::sizes);
  for (int i = 0; i < num_rows; ++i) {
    report.add(row_of(i));
  }
  return ::testing::internal::GetCapturedStdout();  // before the end
}

TEST(Report, TableAndCsvComeRowByRowUnderOneHeaderAndJsonAtTheEnd) {
  const auto table = printed(analysis::Format::table, 2);
  EXPECT_EQ(table, analysis::comm_header(CommView::sizes) + analysis::comm_line(row_of(0), CommView::sizes) +
                       analysis::comm_line(row_of(1), CommView::sizes));
  const auto csv = printed(analysis::Format::csv, 2);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_THAT(csv, ::testing::StartsWith("operation,group,backend,"));
  EXPECT_THAT(csv, HasSubstr(",9.87654321,"));
  EXPECT_EQ(printed(analysis::Format::json, 2), "");
}

TEST(Verdict, SaysWhatWasChecked) {
  EXPECT_EQ(results_verdict({row_of(0), row_of(0)}), "all results are right");
  EXPECT_EQ(results_verdict({row_of(0), row_of(-1)}), "all results are right, but for barriers, which have none");
  EXPECT_EQ(results_verdict({row_of(-1)}), "nothing was checked: a barrier has no result");
  EXPECT_EQ(results_verdict({row_of(-1), row_of(1)}), "1 received element is wrong");
  EXPECT_EQ(results_verdict({row_of(2), row_of(1)}), "3 received elements are wrong");
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
}

}  // namespace
}  // namespace shardmark::app::bench
