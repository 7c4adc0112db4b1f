// Communicators that need no launcher, nominal payload, and the counting decorator's arithmetic.

#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "comm/counting_communicator.hpp"
#include "comm/dry_run_communicator.hpp"
#include "comm/self_communicator.hpp"

namespace shardmark::comm {
namespace {

Collective collective_of(Operation operation, std::int64_t send, std::int64_t receive) {
  Collective collective;
  collective.operation = operation;
  collective.send.count = send;
  collective.receive.count = receive;
  return collective;
}

TEST(WireBytes, AreNominal) {
  // Design: all_reduce 2 (g-1)/g S, the others (g-1)/g S, S the whole padded buffer; 4 bytes an element here.
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::all_reduce, 0, 100), 4), 2 * 0.75 * 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::reduce_scatter, 100, 25), 4), 0.75 * 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::all_gather, 25, 100), 4), 0.75 * 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::all_to_all, 100, 100), 4), 0.75 * 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::broadcast, 0, 100), 4), 0.75 * 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::barrier, 0, 0), 4), 0);
  // A rank sends all of its S bytes to one other, or to itself, which is no message.
  Collective shift = collective_of(Operation::send_receive, 100, 100);
  EXPECT_DOUBLE_EQ(wire_bytes(shift, 4), 0);
  shift.root = 3;
  EXPECT_DOUBLE_EQ(wire_bytes(shift, 4), 400);
  EXPECT_EQ(shift.message_bytes(), 400);
  EXPECT_DOUBLE_EQ(wire_bytes(collective_of(Operation::all_reduce, 0, 100), 1), 0);
}

TEST(Shape, WhatDoesNotFitIsRefused) {
  EXPECT_NO_THROW(check_shape(collective_of(Operation::reduce_scatter, 12, 3), 4));
  EXPECT_THROW(check_shape(collective_of(Operation::reduce_scatter, 13, 3), 4), base::InvariantError);
  EXPECT_THROW(check_shape(collective_of(Operation::all_gather, 3, 13), 4), base::InvariantError);
  EXPECT_THROW(check_shape(collective_of(Operation::all_to_all, 10, 10), 4), base::InvariantError);
  EXPECT_THROW(check_shape(collective_of(Operation::all_reduce, 0, -1), 4), base::InvariantError);
  Collective broadcast = collective_of(Operation::broadcast, 0, 5);
  broadcast.root = 4;
  EXPECT_THROW(check_shape(broadcast, 4), base::InvariantError);
  Collective shift = collective_of(Operation::send_receive, 5, 5);
  shift.root = 3;
  EXPECT_NO_THROW(check_shape(shift, 4));
  EXPECT_THROW(check_shape(shift, 3), base::InvariantError);
  shift.root = -1;
  EXPECT_THROW(check_shape(shift, 4), base::InvariantError);
  EXPECT_THROW(check_shape(collective_of(Operation::send_receive, 5, 6), 4), base::InvariantError);
  Collective gather = collective_of(Operation::all_gather, 3, 12);
  gather.send.dtype = base::DType::bf16;
  EXPECT_THROW(check_shape(gather, 4), base::InvariantError);
}

TEST(SelfCommunicator, CopiesAndCompletesAtOnce) {
  SelfCommunicator self;
  std::vector<float> from{1, 2, 3};
  std::vector<float> to(3);
  const Buffer send{from.data(), 3};
  const Buffer receive{to.data(), 3};
  Pending pending = self.all_gather(send, receive, Purpose::parameter, 1);
  EXPECT_TRUE(pending.done());
  EXPECT_EQ(to, from);
  from = {4, 5, 6};
  self.reduce_scatter(send, receive, Purpose::gradient, 2).wait();
  EXPECT_EQ(to, from);
  from = {7, 8, 9};
  self.all_to_all(send, receive, Purpose::buffer, 3).wait();
  EXPECT_EQ(to, from);
  self.all_reduce(receive, Purpose::gradient, 4, SumOrder::ordered).wait();
  self.broadcast(receive, 0, Purpose::parameter, 5).wait();
  self.reduce_scatter(receive, receive, Purpose::gradient, 6).wait();
  EXPECT_EQ(to, from);
  from = {1, 5, 9};
  self.send_receive(send, receive, 0, Purpose::buffer, 7).wait();
  EXPECT_EQ(to, from);
  EXPECT_THROW(static_cast<void>(self.send_receive(send, receive, 1, Purpose::buffer, 8)), base::InvariantError);
  EXPECT_EQ(self.barrier().ticket(), 8);
  EXPECT_THROW(static_cast<void>(self.test(9)), base::InvariantError);
  EXPECT_EQ(self.split(0, "node")->name(), "node");
}

TEST(DryRunCommunicator, ClaimsRanksAndTouchesNothing) {
  DryRunCommunicator dry(5, 8);
  EXPECT_EQ(dry.rank(), 5);
  EXPECT_EQ(dry.size(), 8);
  const Buffer nowhere{nullptr, 8 * 1000};
  const Buffer part{nullptr, 1000};
  dry.reduce_scatter(nowhere, part, Purpose::gradient, 1).wait();
  Pending gather = dry.all_gather(part, nowhere, Purpose::parameter, 1);
  EXPECT_TRUE(gather.done());
  dry.send_receive(part, part, 7, Purpose::buffer, 1).wait();
  EXPECT_THROW(static_cast<void>(dry.send_receive(part, part, 8, Purpose::buffer, 1)), base::InvariantError);
  EXPECT_THROW(static_cast<void>(dry.all_gather(part, part, Purpose::parameter, 1)), base::InvariantError);
  EXPECT_THROW(DryRunCommunicator(8, 8), base::InvariantError);
}

TEST(DryRunCommunicator, SplitsByTheColorsItWasTold) {
  DryRunCommunicator dry(5, 8);
  EXPECT_THROW(static_cast<void>(dry.split(1, "shard")), base::InvariantError);
  dry.set_colors("shard", [](int rank) { return rank / 4; });
  dry.set_colors("replica", [](int rank) { return rank % 4; });
  const auto shard = dry.split(1, "shard");
  EXPECT_EQ(shard->rank(), 1);
  EXPECT_EQ(shard->size(), 4);
  EXPECT_EQ(shard->name(), "shard");
  const auto replica = dry.split(1, "replica");
  EXPECT_EQ(replica->rank(), 1);
  EXPECT_EQ(replica->size(), 2);
  EXPECT_THROW(static_cast<void>(dry.split(0, "shard")), base::InvariantError);
}

TEST(CountingCommunicator, CountsWhatADryRunWouldMove) {
  auto dry = std::make_unique<DryRunCommunicator>(0, 4);
  dry->set_colors("pair", [](int rank) { return rank / 2; });
  CountingCommunicator counting(std::move(dry));
  const Buffer whole{nullptr, 400};
  const Buffer part{nullptr, 100};
  for (int step = 0; step < 3; ++step) {
    counting.all_reduce(whole, Purpose::gradient, step).wait();
    counting.reduce_scatter(whole, part, Purpose::gradient, step).wait();
  }
  counting.split(0, "pair")->all_reduce(whole, Purpose::gradient, 0).wait();
  counting.all_reduce({nullptr, 400, base::DType::bf16}, Purpose::gradient, 0).wait();
  const auto rows = counting.counts().rows();
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].count, 3);
  EXPECT_DOUBLE_EQ(rows[0].wire_bytes, 3 * 2 * 0.75 * 1600);
  EXPECT_EQ(rows[1].operation, Operation::reduce_scatter);
  EXPECT_DOUBLE_EQ(rows[1].wire_bytes, 3 * 0.75 * 1600);
  EXPECT_EQ(rows[2].group, "pair");
  EXPECT_DOUBLE_EQ(rows[2].wire_bytes, 2 * 0.5 * 1600);
  EXPECT_EQ(rows[3].dtype, base::DType::bf16);
  EXPECT_EQ(rows[3].message_bytes, 800);
}

TEST(CountingCommunicator, SwitchesOffAndForgets) {
  CountingCommunicator counting(std::make_unique<DryRunCommunicator>(0, 4));
  const Buffer buffer{nullptr, 400};
  counting.counts().set_counting(false);
  counting.all_reduce(buffer, Purpose::gradient, 0).wait();
  EXPECT_TRUE(counting.counts().rows().empty());
  counting.counts().set_counting(true);
  Pending before_reset = counting.all_reduce(buffer, Purpose::gradient, 1);
  counting.counts().reset();
  before_reset.wait();
  EXPECT_TRUE(counting.counts().rows().empty());
  EXPECT_EQ(counting.counts().exposed_s(), 0);
}

TEST(CollectiveCounts, MedianStaysNearWithBoundedSamples) {
  CollectiveCounts counts;
  const auto row = counts.count(collective_of(Operation::all_reduce, 0, 8), "world", 2);
  EXPECT_TRUE(std::isnan(counts.rows()[0].median_s));
  EXPECT_TRUE(std::isnan(counts.rows()[0].min_s));
  for (int i = 1; i <= 5; ++i) {
    counts.add_completed(row, i);
  }
  EXPECT_DOUBLE_EQ(counts.rows()[0].median_s, 3);
  for (int i = 6; i <= 10'000; ++i) {
    counts.add_completed(row, i);
  }
  const CollectiveStats stats = counts.rows()[0];
  EXPECT_DOUBLE_EQ(stats.min_s, 1);
  EXPECT_DOUBLE_EQ(stats.max_s, 10'000);
  // 10,000 values in 512 samples at most: the selection is even, one in 32.
  EXPECT_NEAR(stats.median_s, 5000, 64);
}

}  // namespace
}  // namespace shardmark::comm
