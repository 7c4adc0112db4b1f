// What must wait for what, where computation, too, runs beside the host; and what a failure leaves.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "comm/checking_communicator.hpp"
#include "comm/counting_communicator.hpp"
#include "comm/nccl_error.hpp"
#include "tests/parallel/nccl/fixture.hpp"
#include "tests/support/threaded_device.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::Purpose;

void a_while() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// 0 + 1 + ... of what the ranks put in: rank + round.
float sum_of_round(int round) {
  const int size = test_world().size();
  return static_cast<float>(size * (size - 1) / 2 + size * round);
}

TEST(Streams, CollectivesWaitForComputationAndComputationForThem) {
  constexpr int kRounds = 8;
  ThreadedDevice device;
  const auto nccl = make_nccl(device);
  std::vector<float> buffers(kRounds, -1);
  std::vector<float> found(kRounds, -2);
  std::vector<comm::Pending> pending;
  for (int round = 0; round < kRounds; ++round) {
    const auto at = static_cast<std::size_t>(round);
    device.compute([&, at, round] {
      a_while();  // the collective is enqueued before its values are there
      buffers[at] = static_cast<float>(test_world().rank() + round);
    });
    pending.push_back(nccl->all_reduce({&buffers[at], 1}, Purpose::gradient, round));
  }
  for (std::size_t at = 0; at < kRounds; ++at) {
    pending[at].wait();
    device.compute([&, at] { found[at] = buffers[at]; });  // before the sum is there, unless it waits
  }
  nccl->barrier().wait();
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_ON_ALL_RANKS(found[static_cast<std::size_t>(round)] == sum_of_round(round)) << "round " << round;
  }
}

TEST(Streams, AWaitIsForItsOwnCollectiveAndNotForLaterOnes) {
  ThreadedDevice device;
  const auto nccl = make_nccl(device);
  float first = 1;
  float second = 1;
  auto one = nccl->all_reduce({&first, 1}, Purpose::gradient, 1);
  comm::Pending two;
  if (test_world().rank() == 0) {
    two = nccl->all_reduce({&second, 1}, Purpose::gradient, 2);
  }
  one.wait();
  // Computation of rank 0 gets past the first although the others start the second only after the barrier.
  device.synchronize([started_s = base::now_s()](std::int64_t turn) {
    test_world().poll(turn, started_s, {.operation = "computation", .purpose = ""});
  });
  test_world().barrier();
  if (test_world().rank() != 0) {
    two = nccl->all_reduce({&second, 1}, Purpose::gradient, 2);
  }
  two.wait();
  nccl->barrier().wait();
  EXPECT_ON_ALL_RANKS(second == static_cast<float>(test_world().size()));
}

TEST(Streams, EachOfThoseStartedTogetherWaitsForTheComputationBeforeIt) {
  ThreadedDevice device;
  const auto nccl = make_nccl(device);
  const auto size = static_cast<std::size_t>(nccl->size());
  const auto mine = static_cast<float>(nccl->rank() + 1);
  std::int64_t on_host = 1;
  float one = 0;
  // Takes long enough that an end which is not waited for shows.
  constexpr std::size_t kMany = 300'000;
  std::vector<float> other(kMany);
  std::vector<float> ones(size);
  std::vector<float> others(size * kMany);
  std::vector<float> found;
  nccl->begin_together();
  auto host = nccl->all_reduce({&on_host, 1, DType::int64, comm::Place::host}, Purpose::control, 1);
  device.compute([&] {
    a_while();
    one = mine;
  });
  auto first = nccl->all_gather({&one, 1}, {ones.data(), nccl->size()}, Purpose::parameter, 2);
  device.compute([&] {
    a_while();
    other.back() = 10 * mine;
  });
  auto second = nccl->all_gather({other.data(), kMany}, {others.data(), nccl->size() * static_cast<std::int64_t>(kMany)},
                                 Purpose::parameter, 3);
  nccl->end_together();
  host.wait();
  first.wait();
  second.wait();
  device.compute([&] {
    found = ones;
    for (std::size_t r = 1; r <= size; ++r) {
      found.push_back(others[r * kMany - 1]);
    }
  });
  nccl->barrier().wait();
  for (std::size_t r = 0; r < size; ++r) {
    EXPECT_ON_ALL_RANKS(found[r] == static_cast<float>(r + 1) && found[size + r] == static_cast<float>(10 * (r + 1)))
        << "rank " << r << ": " << found[r] << " and " << found[size + r];
  }
}

/// Else two devices could wait for each other: what one starts first waits for what the other starts last.
TEST(Checked, WhatIsAgreedOnEarlierWaitsForWhatWasStartedBefore) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank agrees with itself at once";
  }
  const auto device = device::make_host_device(true);
  comm::CheckingCommunicator all(make_nccl(*device), comm::CommHandle::duplicate(test_world()), {true, nullptr});
  const auto alone = all.split(test_world().rank(), "alone");
  float first = 1;
  float second = 1;
  if (test_world().rank() != 0) {
    test_world().barrier();  // until rank 0 has looked, the others do not agree on the first
  }
  auto one = all.all_reduce({&first, 1}, Purpose::gradient, 1);
  auto two = alone->all_reduce({&second, 1}, Purpose::gradient, 2);
  bool passed_by = false;
  if (test_world().rank() == 0) {
    const double until_s = base::now_s() + 0.1;
    while (!passed_by && base::now_s() < until_s) {
      passed_by = two.done();
    }
    test_world().barrier();
  }
  one.wait();
  two.wait();
  EXPECT_ON_ALL_RANKS(!passed_by);
  EXPECT_ON_ALL_RANKS(first == static_cast<float>(test_world().size()) && second == 1);
}

TEST(NcclFailure, ACommunicatorGivenUpWithWorkUnderWayIsAborted) {
  const auto before = nccl_calls();
  const auto device = device::make_host_device(true);
  float value = 1;
  {
    const auto nccl = make_nccl(*device);
    static_cast<void>(nccl->all_reduce({&value, 1}, Purpose::gradient, 1));
  }
  EXPECT_EQ(nccl_calls().aborted - before.aborted, 1);
  EXPECT_EQ(nccl_calls().live, before.live);
  test_world().barrier();
}

TEST(NcclFailure, AbortsTheWholeFamilyOnceAndLeavesNothing) {
  const auto before = nccl_calls();
  const auto device = device::make_host_device(true);
  {
    const auto nccl = make_nccl(*device);
    const auto half = nccl->split(0, "again");
    if (test_world().rank() == test_world().size() - 1) {
      plant_nccl_fault(NcclFault::async_error);
    }
    float value = 1;
    const auto some = [&] {  // which is the first to notice is for the ranks' speed to say
      for (int i = 0; i < 1000; ++i) {
        half->all_reduce({&value, 1}, Purpose::gradient, 1).wait();
      }
    };
    EXPECT_THROW(some(), comm::NcclError);
    plant_nccl_fault(NcclFault::none);
    EXPECT_EQ(nccl_calls().aborted - before.aborted, 2);
    EXPECT_THROW(nccl->all_reduce({&value, 1}, Purpose::gradient, 1).wait(), base::InvariantError);
  }
  EXPECT_EQ(nccl_calls().live, before.live);
  EXPECT_EQ(nccl_calls().aborted - before.aborted, 2);
  test_world().barrier();
}

TEST(NcclFailure, WithinAGroupClosesTheGroupFirst) {
  const auto before = nccl_calls();
  const auto device = device::make_host_device(true);
  const auto nccl = make_nccl(*device);
  plant_nccl_fault(NcclFault::send_refused);
  std::vector<float> from(static_cast<std::size_t>(nccl->size()), 1);
  std::vector<float> into(from.size());
  const auto count = static_cast<std::int64_t>(from.size());
  EXPECT_THROW(nccl->all_to_all({from.data(), count}, {into.data(), count}, Purpose::gradient, 1).wait(), comm::NcclError);
  plant_nccl_fault(NcclFault::none);
  EXPECT_EQ(nccl_calls().open_groups, 0);
  EXPECT_EQ(nccl_calls().aborted - before.aborted, 1);
  test_world().barrier();
}

TEST(NcclFailure, WithinCollectivesStartedTogetherClosesTheirGroup) {
  const auto before = nccl_calls();
  const auto device = device::make_host_device(true);
  const auto nccl = make_nccl(*device);
  plant_nccl_fault(NcclFault::send_refused);
  std::vector<float> from(static_cast<std::size_t>(nccl->size()), 1);
  std::vector<float> into(from.size());
  const auto count = static_cast<std::int64_t>(from.size());
  nccl->begin_together();
  EXPECT_THROW(static_cast<void>(nccl->all_to_all({from.data(), count}, {into.data(), count}, Purpose::gradient, 1)),
               comm::NcclError);
  plant_nccl_fault(NcclFault::none);
  EXPECT_EQ(nccl_calls().open_groups, 0);
  EXPECT_EQ(nccl_calls().aborted - before.aborted, 1);
  test_world().barrier();
}

TEST(Follow, ReturnsOnceTheEventIsComplete) {
  ThreadedDevice device;
  const auto nccl = make_nccl(device);
  const auto event = device.make_event();
  device.compute([] { a_while(); });
  device.compute().record(*event);
  nccl->follow(*event);
  EXPECT_TRUE(event->complete());
  test_world().barrier();
}

/// Nobody may wait inside NCCL for a rank that is not coming.
TEST(NcclInit, AllMeetOnceTheIdIsKnown) {
  comm::CountingCommunicator host(make_host_side());
  const auto started_s = base::now_s();
  const comm::NcclHandle handle(host, "a test", [&](std::int64_t turn) {
    test_world().poll(turn, started_s, {.operation = "nccl_init", .purpose = ""});
  });
  std::string operations;
  for (const auto& row : host.counts().rows()) {
    operations.append(comm::name_of(row.operation)).append(" ").append(std::to_string(row.count)).append(", ");
  }
  EXPECT_ON_ALL_RANKS(operations == "broadcast 1, barrier 1, ") << operations;
}

}  // namespace
}  // namespace shardmark::testing
