// The events of a rank: what is kept, what is dropped and counted, in which order they come out.

#include "base/trace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace shardmark::base {
namespace {

constexpr std::size_t kThree = 3 * sizeof(TraceEvent);

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> found;
  for (const auto& event : trace.sorted_events()) {
    found.push_back(trace.text_of(event.name));
  }
  return found;
}

TEST(Trace, EqualTextsGetEqualNames) {
  Trace trace(kThree);
  const auto a = trace.intern("forward a");
  EXPECT_NE(a, trace.intern("forward b"));
  EXPECT_EQ(a, trace.intern(std::string("forward ") + "a"));
  EXPECT_EQ(trace.text_of(a), "forward a");
  EXPECT_EQ(trace.intern(""), 0);
  EXPECT_EQ(trace.text_of(TraceEvent{}.purpose), "");
}

TEST(Trace, KeepsTheFirstAndCountsWhatItDrops) {
  Trace trace(kThree + sizeof(TraceEvent) - 1);  // a part of an event holds none
  const auto name = trace.intern("x");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(trace.add(TraceKind::phase, name, i, i + 1), i);
  }
  EXPECT_EQ(trace.num_dropped(), 0);
  const auto dropped = trace.add(TraceKind::phase, name, 3);
  EXPECT_EQ(dropped, -1);
  trace.end(dropped, 4);  // nothing to end
  EXPECT_EQ(trace.add(TraceEvent{}), -1);
  EXPECT_EQ(trace.num_dropped(), 2);
  EXPECT_EQ(trace.num_events(), 3);
  EXPECT_EQ(trace.sorted_events().size(), 3U);
  EXPECT_EQ(trace.sorted_events().back().end_s, 3);
}

TEST(Trace, TheDefaultHoldsWhatItsMemoryHolds) {
  Trace trace;
  const auto most = static_cast<std::int64_t>(Trace::kMaxBytes / sizeof(TraceEvent));
  EXPECT_GT(most, 500'000);
  for (std::int64_t i = 0; i < most; ++i) {
    ASSERT_EQ(trace.add(TraceKind::wait, 0, 0, 0), i);
  }
  EXPECT_EQ(trace.add(TraceKind::wait, 0, 0, 0), -1);
}

TEST(Trace, AnEventHasTheStepInWhichItBegan) {
  Trace trace(kThree);
  trace.add(TraceKind::phase, 0, 0, 1);
  trace.set_step(7);
  const auto open = trace.add(TraceKind::unit, 0, 1);
  trace.set_step(-1);
  trace.end(open, 2);
  trace.add(TraceKind::wait, 0, 3, 4);
  const auto events = trace.sorted_events();
  EXPECT_EQ(events[0].step, -1);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[1].end_s, 2);
  EXPECT_EQ(events[2].step, -1);
}

TEST(Trace, WhatEnclosesComesFirst) {
  Trace trace(6 * sizeof(TraceEvent));
  // Recorded as a run records them: inner ones first, some at the very time of what encloses them.
  trace.add(TraceKind::wait, trace.intern("wait"), 1, 2);
  trace.add(TraceKind::unit, trace.intern("unit"), 1, 2);
  trace.add(TraceKind::phase, trace.intern("phase"), 1, 3);
  trace.add(TraceKind::step, trace.intern("step"), 0, 4);
  trace.add(TraceKind::phase, trace.intern("open"), 1);
  EXPECT_EQ(names(trace), (std::vector<std::string>{"step", "open", "phase", "unit", "wait"}));
  EXPECT_TRUE(std::isnan(trace.sorted_events()[1].end_s));
}

TEST(Trace, KindsAreCalledAsInTheRecord) {
  EXPECT_EQ(name_of(TraceKind::step), "step");
  EXPECT_EQ(name_of(TraceKind::phase), "phase");
  EXPECT_EQ(name_of(TraceKind::unit), "unit");
  EXPECT_EQ(name_of(TraceKind::wait), "wait");
  EXPECT_EQ(name_of(TraceKind::collective), "collective");
}

}  // namespace
}  // namespace shardmark::base
