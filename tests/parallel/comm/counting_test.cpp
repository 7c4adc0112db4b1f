// Counts of real collectives equal the nominal payload exactly, and times are those of the calling thread.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/factory.hpp"
#include "tests/parallel/comm/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::CollectiveStats;
using comm::Operation;
using comm::Purpose;

CollectiveStats row_of(const std::vector<CollectiveStats>& rows, Operation operation, const std::string& group) {
  for (const CollectiveStats& row : rows) {
    if (row.operation == operation && row.group == group) {
      return row;
    }
  }
  return {};
}

TEST(Counting, PayloadOfEveryOperationIsTheNominalOne) {
  auto stack = comm::make_communicator(test_world(), {});
  auto& communicator = stack.communicator();
  const int size = communicator.size();
  const double share = static_cast<double>(size - 1) / size;
  constexpr std::int64_t kPart = 96;
  Elements whole(DType::bf16, kPart * size);
  Elements other(DType::bf16, kPart * size);
  Elements part(DType::bf16, kPart);
  for (int repeat = 0; repeat < 3; ++repeat) {
    communicator.all_reduce(whole.buffer(), Purpose::gradient, repeat).wait();
    communicator.reduce_scatter(whole.buffer(), part.buffer(), Purpose::gradient, repeat).wait();
    communicator.all_gather(part.buffer(), whole.buffer(), Purpose::parameter, repeat).wait();
    communicator.broadcast(whole.buffer(), 0, Purpose::buffer, repeat).wait();
    communicator.all_to_all(whole.buffer(), other.buffer(), Purpose::buffer, repeat).wait();
    communicator.send_receive(whole.buffer(), other.buffer(), size - 1, Purpose::buffer, repeat).wait();
    communicator.barrier(repeat).wait();
  }
  const auto rows = stack.counts().rows();
  EXPECT_EQ(rows.size(), 7U);
  const double bytes = 2.0 * kPart * size;
  const std::pair<Operation, double> nominal[] = {{Operation::all_reduce, 2 * share * bytes},
                                                  {Operation::reduce_scatter, share * bytes},
                                                  {Operation::all_gather, share * bytes},
                                                  {Operation::broadcast, share * bytes},
                                                  {Operation::all_to_all, share * bytes},
                                                  {Operation::send_receive, size > 1 ? bytes : 0},
                                                  {Operation::barrier, 0}};
  for (const auto& [operation, wire] : nominal) {
    const CollectiveStats row = row_of(rows, operation, "world");
    EXPECT_EQ(row.count, 3) << name_of(operation);
    EXPECT_EQ(row.message_bytes, operation == Operation::barrier ? 0 : static_cast<std::int64_t>(bytes)) << name_of(operation);
    EXPECT_DOUBLE_EQ(row.wire_bytes, 3 * wire) << name_of(operation);
    EXPECT_GE(row.min_s, 0);
    EXPECT_LE(row.min_s, row.median_s);
    EXPECT_LE(row.median_s, row.max_s);
    EXPECT_LE(row.max_s, row.total_s);
  }
}

TEST(Counting, GroupsCountIntoRowsOfTheirOwn) {
  auto stack = comm::make_communicator(test_world(), {});
  const auto group = stack.communicator().split(test_world().rank() % 2, "shard");
  Elements data(DType::fp32, 64);
  group->all_reduce(data.buffer(), Purpose::gradient, 1).wait();
  const CollectiveStats row = row_of(stack.counts().rows(), Operation::all_reduce, "shard");
  EXPECT_EQ(row.count, 1);
  EXPECT_DOUBLE_EQ(row.wire_bytes, 2.0 * (group->size() - 1) / group->size() * 256);
}

TEST(Counting, TimeUnderComputationIsNotExposed) {
  auto stack = comm::make_communicator(test_world(), {});
  auto& communicator = stack.communicator();
  Elements data(DType::fp32, 64);
  communicator.barrier().wait();
  stack.counts().reset();
  auto pending = communicator.all_reduce(data.buffer(), Purpose::gradient, 1);
  constexpr double kComputed_s = 0.05;
  const double until_s = base::now_s() + kComputed_s;
  while (base::now_s() < until_s) {
    std::this_thread::yield();
  }
  pending.wait();
  const CollectiveStats row = row_of(stack.counts().rows(), Operation::all_reduce, "world");
  EXPECT_GE(row.total_s, kComputed_s);
  EXPECT_LE(row.exposed_s, row.total_s - kComputed_s + 1e-3);
  EXPECT_DOUBLE_EQ(stack.counts().exposed_s(), row.exposed_s);
}

TEST(Factory, BackendsAndWhatTheyAreCalled) {
  auto stack = comm::make_communicator(test_world(), {.backend = "mpi", .check = false});
  EXPECT_EQ(stack.backend(), test_world().size() == 1 ? "self" : "mpi");
  EXPECT_FALSE(stack.checked());
  EXPECT_EQ(comm::make_communicator(test_world(), {}).checked(), test_world().size() > 1);
  EXPECT_THROW(static_cast<void>(comm::make_communicator(test_world(), {.backend = "nccl"})), base::EnvironmentError);
}

}  // namespace
}  // namespace shardmark::testing
