// Several operations in flight, groups side by side, and what Pending promises.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/factory.hpp"
#include "tests/parallel/comm/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::Pending;
using comm::Purpose;
using comm::SumOrder;

/// The stack under test: what `run` uses, and the implementation with few lanes.
enum class Stack { bare, one_lane, checked, factory };

class Queue : public ::testing::TestWithParam<Stack> {
 protected:
  void SetUp() override {
    switch (GetParam()) {
      case Stack::bare: communicator_ = make_mpi(); break;
      case Stack::one_lane: communicator_ = make_mpi({.window = 1, .lanes = 1}); break;
      case Stack::checked: communicator_ = make_checked(); break;
      case Stack::factory: stack_ = std::make_unique<comm::CommunicatorStack>(comm::make_communicator(test_world(), {})); break;
    }
  }
  [[nodiscard]] comm::Communicator& communicator() { return communicator_ ? *communicator_ : stack_->communicator(); }

  std::unique_ptr<comm::Communicator> communicator_;
  std::unique_ptr<comm::CommunicatorStack> stack_;
};

TEST_P(Queue, ManyInFlightWaitedInAnyOrder) {
  constexpr int kNumOperations = 40;  // more than lanes, slots and the first size of the queue
  std::vector<Elements> sums;
  std::vector<Pending> pending(kNumOperations);
  const int rank = communicator().rank();
  for (int k = 0; k < kNumOperations; ++k) {
    sums.push_back(rank_values(DType::fp32, 1 + (k * 7919) % 30000, rank));
  }
  for (std::size_t k = 0; k < pending.size(); ++k) {
    pending[k] =
        communicator().all_reduce(sums[k].buffer(), Purpose::gradient, static_cast<std::int64_t>(k), SumOrder::ordered);
  }
  for (std::size_t k = pending.size(); k-- > 0;) {
    pending[(k * 7) % pending.size()].wait();
  }
  bool equal = true;
  for (const Elements& sum : sums) {
    equal = equal && sum == expected_sum(DType::fp32, sum.count, communicator().size());
  }
  EXPECT_ON_ALL_RANKS(equal);
}

TEST_P(Queue, UnlikeOperationsFollowEachOther) {
  const int size = communicator().size();
  const int rank = communicator().rank();
  constexpr std::int64_t kPart = 5003;
  for (int repeat = 0; repeat < 10; ++repeat) {
    Elements gradient = rank_values(DType::fp32, kPart * size, rank);
    Elements shard(DType::fp32, kPart);
    Elements gathered(DType::fp32, kPart * size);
    Elements sum = rank_values(DType::bf16, 77, rank);
    Pending scatter = communicator().reduce_scatter(gradient.buffer(), shard.buffer(), Purpose::gradient, repeat);
    Pending reduce = communicator().all_reduce(sum.buffer(), Purpose::gradient, repeat);
    Pending barrier = communicator().barrier(repeat);
    scatter.wait();
    Pending gather = communicator().all_gather(shard.buffer(), gathered.buffer(), Purpose::parameter, repeat);
    gather.wait();
    EXPECT_ON_ALL_RANKS(barrier.done() && reduce.done());  // earlier operations complete first
    EXPECT_ON_ALL_RANKS(gathered == expected_sum(DType::fp32, kPart * size, size));
    EXPECT_ON_ALL_RANKS(sum == expected_sum(DType::bf16, 77, size));
  }
}

TEST_P(Queue, ProgressAloneCompletes) {
  Elements sum = rank_values(DType::fp32, 300'000, communicator().rank());
  Pending pending = communicator().all_reduce(sum.buffer(), Purpose::gradient, 1);
  const double until_s = base::now_s() + 20;
  while (!pending.done() && base::now_s() < until_s) {
    communicator().progress();
  }
  EXPECT_ON_ALL_RANKS(pending.done());
  EXPECT_ON_ALL_RANKS(sum == expected_sum(DType::fp32, 300'000, communicator().size()));
}

TEST_P(Queue, GroupsWorkSideBySide) {
  const int size = communicator().size();
  const int rank = communicator().rank();
  // Neighbours in pairs, and ranks of equal parity: every rank is in both, at places of its own.
  const auto pairs = communicator().split(rank / 2, "pairs");
  const auto parity = communicator().split(rank % 2, "parity");
  EXPECT_ON_ALL_RANKS(pairs->name() == "pairs" && parity->name() == "parity");
  EXPECT_ON_ALL_RANKS(pairs->rank() == rank % 2 && pairs->size() == std::min(2, size - rank / 2 * 2));
  EXPECT_ON_ALL_RANKS(parity->rank() == rank / 2 && parity->size() == (size + 1 - rank % 2) / 2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    Elements a(DType::int64, 1009);
    Elements b(DType::int64, 13);
    Elements c(DType::int64, 1);
    a.set(1008, rank + 1);
    b.set(12, rank + 1);
    c.set(0, rank + 1);
    Pending in_pairs = pairs->all_reduce(a.buffer(), Purpose::gradient, repeat);
    Pending in_parity = parity->all_reduce(b.buffer(), Purpose::gradient, repeat);
    Pending in_all = communicator().all_reduce(c.buffer(), Purpose::gradient, repeat);
    in_all.wait();
    in_parity.wait();
    in_pairs.wait();
    std::int64_t pair_sum = 0;
    std::int64_t parity_sum = 0;
    for (int r = 0; r < size; ++r) {
      pair_sum += r / 2 == rank / 2 ? r + 1 : 0;
      parity_sum += r % 2 == rank % 2 ? r + 1 : 0;
    }
    EXPECT_ON_ALL_RANKS(a.get(1008) == static_cast<double>(pair_sum) && b.get(12) == static_cast<double>(parity_sum));
    EXPECT_ON_ALL_RANKS(c.get(0) == size * (size + 1) / 2);
  }
}

TEST_P(Queue, PendingAndTickets) {
  Pending empty;
  empty.wait();
  EXPECT_TRUE(empty.done());
  Pending first = communicator().barrier();
  Pending second = communicator().barrier();
  EXPECT_ON_ALL_RANKS(first.ticket() == 1 && second.ticket() == 2);
  second.wait();
  EXPECT_ON_ALL_RANKS(first.done() && second.done());
  first.wait();
  first.wait();
  EXPECT_THROW(static_cast<void>(communicator().test(3)), base::InvariantError);
}

TEST_P(Queue, BuffersThatDoNotFitAreRefused) {
  Elements send(DType::fp32, 7 * communicator().size() + 1);
  Elements receive(DType::fp32, 7);
  Elements other(DType::fp64, 7 * communicator().size());
  const auto scatter = [&](Elements& from) {
    static_cast<void>(communicator().reduce_scatter(from.buffer(), receive.buffer(), Purpose::gradient, 1));
  };
  EXPECT_THROW(scatter(send), base::InvariantError);
  EXPECT_THROW(scatter(other), base::InvariantError);
  communicator().barrier().wait();  // still usable
}

std::string name_of_stack(const ::testing::TestParamInfo<Stack>& instance) {
  switch (instance.param) {
    case Stack::bare: return "bare";
    case Stack::one_lane: return "one_lane";
    case Stack::checked: return "checked";
    case Stack::factory: return "factory";
  }
  return "unknown";
}

INSTANTIATE_TEST_SUITE_P(Stacks, Queue, ::testing::Values(Stack::bare, Stack::one_lane, Stack::checked, Stack::factory),
                         name_of_stack);

}  // namespace
}  // namespace shardmark::testing
