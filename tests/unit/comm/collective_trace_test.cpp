// Events that the counting decorator makes of collectives: what they say, when they end, what waits refer to.

#include "comm/collective_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "comm/counting_communicator.hpp"
#include "comm/dry_run_communicator.hpp"

namespace shardmark::comm {
namespace {

using base::TraceKind;

/// Two ranks' worth of a communicator whose collectives end only when they are waited for.
class Slow final : public Communicator {
 public:
  explicit Slow(std::string name = "world") : name_(std::move(name)) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Ticket start(const Collective& /*collective*/) override { return ++started_; }
  [[nodiscard]] bool test(Ticket ticket) override { return ticket <= done_; }
  void wait(Ticket ticket) override { done_ = std::max(done_, ticket); }
  void progress() override {}
  [[nodiscard]] std::unique_ptr<Communicator> split(int /*color*/, const std::string& name) override {
    return std::make_unique<Slow>(name);
  }

 private:
  std::string name_;
  Ticket started_ = 0;
  Ticket done_ = 0;
};

const Buffer kBuffer{nullptr, 100, base::DType::bf16};

TEST(CollectiveTrace, ACollectiveIsAnEventFromStartToCompletion) {
  base::Trace trace(10 * sizeof(base::TraceEvent));
  CountingCommunicator counting(std::make_unique<Slow>());
  counting.counts().set_trace(&trace);
  trace.set_step(4);
  auto first = counting.all_reduce(kBuffer, Purpose::gradient, 7);
  static_cast<void>(counting.split(0, "gather")->all_gather(kBuffer, {nullptr, 200, base::DType::bf16}, Purpose::parameter, 8));
  ASSERT_EQ(trace.num_events(), 2);
  const auto& event = trace.event(0);
  EXPECT_EQ(event.kind, TraceKind::collective);
  EXPECT_EQ(trace.text_of(event.name), "all_reduce");
  EXPECT_EQ(trace.text_of(event.purpose), "gradient");
  EXPECT_EQ(trace.text_of(event.group), "world");
  EXPECT_EQ(trace.text_of(event.dtype), "bf16");
  EXPECT_EQ(event.bytes, 200);
  EXPECT_EQ(event.tag, 7);
  EXPECT_EQ(event.sequence, 0);
  EXPECT_EQ(event.step, 4);
  EXPECT_TRUE(std::isnan(event.end_s)) << "under way";
  EXPECT_EQ(trace.text_of(trace.event(1).group), "gather");
  EXPECT_EQ(trace.event(1).sequence, 1) << "one count for all groups";
  first.wait();
  EXPECT_GE(trace.event(0).end_s, trace.event(0).start_s);
}

TEST(CollectiveTrace, AWaitSaysForWhatAndLiesWithinTheCollective) {
  base::Trace trace(10 * sizeof(base::TraceEvent));
  CountingCommunicator counting(std::make_unique<Slow>());
  counting.counts().set_trace(&trace);
  auto skipped = counting.all_reduce(kBuffer, Purpose::gradient, 1);
  auto waited = counting.reduce_scatter(kBuffer, {nullptr, 50, base::DType::bf16}, Purpose::gradient, 2);
  waited.wait();
  skipped.wait();  // over already: no wait
  ASSERT_EQ(trace.num_events(), 3);
  const auto& wait = trace.event(2);
  EXPECT_EQ(wait.kind, TraceKind::wait);
  EXPECT_EQ(trace.text_of(wait.name), "wait for reduce_scatter");
  EXPECT_EQ(wait.tag, 2);
  EXPECT_EQ(wait.sequence, 1);
  EXPECT_EQ(wait.bytes, 200);
  EXPECT_GE(wait.start_s, trace.event(1).start_s);
  EXPECT_EQ(wait.end_s, trace.event(1).end_s) << "one reading of the clock for both";
  EXPECT_EQ(trace.event(0).end_s, wait.end_s) << "a queue in order: the one before is over too";
}

TEST(CollectiveTrace, CollectivesThatAreNotCountedAreTracedToo) {
  base::Trace trace(10 * sizeof(base::TraceEvent));
  CountingCommunicator counting(std::make_unique<DryRunCommunicator>(0, 2));
  counting.counts().set_counting(false);
  counting.counts().set_trace(&trace);
  counting.barrier().wait();
  EXPECT_EQ(trace.text_of(trace.event(0).name), "barrier");
  EXPECT_EQ(trace.event(0).bytes, 0);
  EXPECT_FALSE(std::isnan(trace.event(0).end_s));
  counting.send_receive(kBuffer, kBuffer, 1, Purpose::buffer, 0).wait();
  EXPECT_EQ(trace.text_of(trace.event(2).name), "send_receive");
  EXPECT_EQ(trace.text_of(trace.event(3).name), "wait for send_receive");
  EXPECT_EQ(trace.event(2).bytes, kBuffer.bytes());
}

TEST(CollectiveTrace, WithoutATraceThereIsNothing) {
  base::Trace trace(10 * sizeof(base::TraceEvent));
  CountingCommunicator counting(std::make_unique<Slow>());
  static_cast<void>(counting.all_reduce(kBuffer, Purpose::gradient, 1));
  counting.counts().set_trace(&trace);
  static_cast<void>(counting.all_reduce(kBuffer, Purpose::gradient, 2));
  counting.counts().set_trace(nullptr);
  auto after = counting.all_reduce(kBuffer, Purpose::gradient, 3);
  after.wait();
  ASSERT_EQ(trace.num_events(), 1);
  EXPECT_EQ(trace.event(0).tag, 2);
}

TEST(CollectiveTrace, AFullTraceOnlyCounts) {
  base::Trace trace(sizeof(base::TraceEvent));
  CountingCommunicator counting(std::make_unique<Slow>());
  counting.counts().set_trace(&trace);
  counting.all_reduce(kBuffer, Purpose::gradient, 1).wait();
  counting.all_reduce(kBuffer, Purpose::gradient, 2).wait();
  EXPECT_EQ(trace.num_events(), 1);
  EXPECT_EQ(trace.num_dropped(), 3) << "one wait, one collective and its wait";
  EXPECT_FALSE(std::isnan(trace.event(0).end_s)) << "what is kept still ends";
}

}  // namespace
}  // namespace shardmark::comm
