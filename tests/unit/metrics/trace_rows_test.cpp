// Events become rows on the clock that all ranks share.

#include "metrics/trace_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace shardmark::metrics {
namespace {

TEST(TraceRows, TimesCountFromTheCommonOrigin) {
  base::Trace trace(4 * sizeof(base::TraceEvent));
  trace.set_step(5);
  base::TraceEvent event;
  event.kind = base::TraceKind::collective;
  event.name = trace.intern("all_gather");
  event.purpose = trace.intern("parameter");
  event.group = trace.intern("gather");
  event.dtype = trace.intern("bf16");
  event.tag = 3;
  event.sequence = 9;
  event.bytes = 640;
  event.start_s = 1104;
  event.end_s = 1104.5;
  trace.add(event);
  trace.add(base::TraceKind::unit, trace.intern("forward block1"), 1102);
  // This rank's clock is 1000 s ahead of rank 0's, on which the trace began at 100.
  const TraceClock clock{1000, 2e-6, 100};
  const auto rows = trace_rows(6, trace, clock);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name.str(), "forward block1") << "by start";
  EXPECT_EQ(rows[0].lane.str(), "compute");
  EXPECT_EQ(rows[0].category.str(), "unit");
  EXPECT_EQ(rows[0].start_s, 2);
  EXPECT_TRUE(std::isnan(rows[0].duration_s)) << "not over";
  EXPECT_EQ(rows[0].bytes, -1);
  const auto& row = rows[1];
  EXPECT_EQ(row.rank, 6);
  EXPECT_EQ(row.lane.str(), "communication");
  EXPECT_EQ(row.category.str(), "collective");
  EXPECT_EQ(row.name.str(), "all_gather");
  EXPECT_EQ(row.purpose.str(), "parameter");
  EXPECT_EQ(row.group.str(), "gather");
  EXPECT_EQ(row.dtype.str(), "bf16");
  EXPECT_EQ(row.step, 5);
  EXPECT_EQ(row.tag, 3);
  EXPECT_EQ(row.sequence, 9);
  EXPECT_EQ(row.bytes, 640);
  EXPECT_EQ(row.start_s, 4);
  EXPECT_EQ(row.duration_s, 0.5);
}

TEST(TraceRows, ARanksRowSaysWhatWasKeptAndDropped) {
  base::Trace trace(2 * sizeof(base::TraceEvent));
  for (int i = 0; i < 5; ++i) {
    trace.add(base::TraceKind::wait, 0, i, i);
  }
  const auto row = trace_rank_row(1, trace, {-4, 3e-6, 7});
  EXPECT_EQ(row.rank, 1);
  EXPECT_EQ(row.num_events, 2);
  EXPECT_EQ(row.num_dropped, 3);
  EXPECT_EQ(row.clock_offset_s, -4);
  EXPECT_EQ(row.clock_uncertainty_s, 3e-6);
}

}  // namespace
}  // namespace shardmark::metrics
