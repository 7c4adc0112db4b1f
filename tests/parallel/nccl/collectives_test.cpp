// Every collective through NCCL's interface against the same over MPI: the same elements, under `ordered` the same bits.

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "tests/parallel/nccl/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::Purpose;
using comm::Reduction;
using comm::SumOrder;

/// Values whose sums over a few ranks are exact in every type, whatever the order.
Elements small_whole_values(DType dtype, std::int64_t count, int rank) {
  Elements values(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    values.set(i, static_cast<double>((i * 7 + rank * 3) % 11));
  }
  return values;
}

class NcclCollectives : public ::testing::TestWithParam<std::tuple<DType, std::int64_t>> {
 protected:
  std::unique_ptr<device::Device> device_ = device::make_host_device(true);
  std::unique_ptr<comm::NcclCommunicator> nccl_ = make_nccl(*device_);
  std::unique_ptr<comm::Communicator> mpi_ = make_host_side();
  DType dtype_ = std::get<0>(GetParam());
  std::int64_t count_ = std::get<1>(GetParam());
  int rank_ = nccl_->rank();
  int size_ = nccl_->size();

  /// Runs `call` over both on copies of `values` and compares what is left in them.
  template <typename Call>
  void expect_same(const Elements& values, const Call& call) {
    Elements by_nccl = values;
    Elements by_mpi = values;
    call(*nccl_, by_nccl);
    call(*mpi_, by_mpi);
    EXPECT_ON_ALL_RANKS(by_nccl == by_mpi) << base::name_of(dtype_) << ", " << count_ << " elements";
  }
};

TEST_P(NcclCollectives, AllReduceOrderedHasTheBitsOfMpi) {
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
    expect_same(rank_values(dtype_, count_, rank_), [&](comm::Communicator& over, Elements& values) {
      over.all_reduce(values.buffer(), Purpose::gradient, 1, SumOrder::ordered, reduction).wait();
    });
  }
}

TEST_P(NcclCollectives, AllReduceFastSums) {
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
    expect_same(small_whole_values(dtype_, count_, rank_), [&](comm::Communicator& over, Elements& values) {
      over.all_reduce(values.buffer(), Purpose::gradient, 1, SumOrder::fast, reduction).wait();
    });
  }
}

TEST_P(NcclCollectives, ReduceScatterInPlaceAndApart) {
  for (const SumOrder order : {SumOrder::ordered, SumOrder::fast}) {
    const std::int64_t whole = count_ * size_;
    const Elements values =
        order == SumOrder::ordered ? rank_values(dtype_, whole, rank_) : small_whole_values(dtype_, whole, rank_);
    expect_same(values, [&](comm::Communicator& over, Elements& all) {
      Elements apart(dtype_, count_);
      over.reduce_scatter(all.buffer(), apart.buffer(), Purpose::gradient, 1, order).wait();
      over.reduce_scatter(all.buffer(), all.part(rank_ * count_, count_), Purpose::gradient, 2, order).wait();
      EXPECT_EQ(std::vector(apart.bytes),
                std::vector(all.bytes.begin() + rank_ * static_cast<std::ptrdiff_t>(apart.bytes.size()),
                            all.bytes.begin() + (rank_ + 1) * static_cast<std::ptrdiff_t>(apart.bytes.size())));
      // Other parts are anyone's to overwrite: only the own one is compared.
      all = apart;
    });
  }
}

TEST_P(NcclCollectives, ASumOfBf16InFp32IsNotRounded) {
  if (dtype_ != DType::bf16) {
    return;
  }
  Elements found(DType::fp32, count_);
  Elements expected(DType::fp32, count_);
  Elements values = rank_values(DType::bf16, count_ * size_, rank_);
  Elements again = values;
  nccl_->reduce_scatter(values.buffer(), found.buffer(), Purpose::gradient, 1, SumOrder::ordered).wait();
  mpi_->reduce_scatter(again.buffer(), expected.buffer(), Purpose::gradient, 1, SumOrder::ordered).wait();
  EXPECT_ON_ALL_RANKS(found == expected);
}

TEST_P(NcclCollectives, Moves) {
  const Elements mine = rank_values(dtype_, count_, rank_);
  const Elements parts = rank_values(dtype_, count_ * size_, rank_);
  expect_same(parts, [&](comm::Communicator& over, Elements& all) {
    over.all_gather(all.part(rank_ * count_, count_), all.buffer(), Purpose::parameter, 1).wait();
  });
  expect_same(parts, [&](comm::Communicator& over, Elements& all) {
    Elements from = mine;
    over.all_gather(from.buffer(), all.buffer(), Purpose::parameter, 1).wait();
  });
  for (int root = 0; root < size_; ++root) {
    expect_same(mine, [&](comm::Communicator& over, Elements& values) {
      over.broadcast(values.buffer(), root, Purpose::buffer, 1).wait();
    });
  }
  expect_same(parts, [&](comm::Communicator& over, Elements& all) {
    Elements from = parts;
    over.all_to_all(from.buffer(), all.buffer(), Purpose::buffer, 1).wait();
  });
  for (int shift = 0; shift < size_; ++shift) {
    expect_same(mine, [&](comm::Communicator& over, Elements& values) {
      Elements from = mine;
      comm::Collective ring{
          .operation = comm::Operation::send_receive, .send = from.buffer(), .receive = values.buffer(), .root = shift};
      over.wait(over.start(ring));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndCounts, NcclCollectives,
                         ::testing::Combine(::testing::Values(DType::fp32, DType::bf16, DType::fp64, DType::int64,
                                                              DType::uint8),
                                            // Nothing, one, a prime, and more than a chunk of the double in each part.
                                            ::testing::Values(0, 1, 31, 70'001)));

class NcclQueue : public ::testing::Test {
 protected:
  std::unique_ptr<device::Device> device_ = device::make_host_device(true);
};

TEST_F(NcclQueue, ManyAreUnderWayAndCompleteInOrder) {
  const auto nccl = make_nccl(*device_);
  std::vector<Elements> buffers;
  std::vector<comm::Pending> pending;
  for (int i = 0; i < 40; ++i) {
    buffers.push_back(rank_values(DType::fp32, 1001, test_world().rank()));
  }
  for (auto& buffer : buffers) {
    pending.push_back(nccl->all_reduce(buffer.buffer(), Purpose::gradient, 1, SumOrder::ordered));
  }
  pending.back().wait();
  const Elements expected = expected_sum(DType::fp32, 1001, test_world().size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(pending[i].done());
    EXPECT_ON_ALL_RANKS(buffers[i] == expected);
  }
}

TEST_F(NcclQueue, WhatIsStartedTogetherLeavesInOneGroup) {
  const auto nccl = make_nccl(*device_);
  const int size = nccl->size();
  Elements one(DType::fp32, 5);
  Elements other(DType::bf16, 3);
  Elements all_one(DType::fp32, 5 * size);
  Elements all_other(DType::bf16, 3 * size);
  one.set(0, test_world().rank());
  other.set(0, test_world().rank() + 10);
  const auto before = nccl_calls();
  nccl->begin_together();
  auto first = nccl->all_gather(one.buffer(), all_one.buffer(), Purpose::parameter, 1);
  auto second = nccl->all_gather(other.buffer(), all_other.buffer(), Purpose::parameter, 2);
  nccl->end_together();
  first.wait();
  second.wait();
  EXPECT_EQ(nccl_calls().groups - before.groups, 1);
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(all_one.get(5 * r), r);
    EXPECT_EQ(all_other.get(3 * r), r + 10);
  }
}

TEST_F(NcclQueue, GroupsOfRanksAreSplitOff) {
  const auto nccl = make_nccl(*device_);
  const int color = test_world().rank() % 2;
  const auto half = nccl->split(color, "half");
  Elements sum(DType::fp64, 3);
  sum.set(1, test_world().rank() + 1);
  half->all_reduce(sum.buffer(), Purpose::gradient, 1).wait();
  double expected = 0;
  for (int r = color; r < test_world().size(); r += 2) {
    expected += r + 1;
  }
  EXPECT_ON_ALL_RANKS(sum.get(1) == expected);
  EXPECT_EQ(half->rank(), test_world().rank() / 2);
  EXPECT_EQ(half->name(), "half");
}

TEST_F(NcclQueue, HostMemoryGoesBesideNcclAndAtOnce) {
  const auto nccl = make_nccl(*device_);
  const auto before = nccl_calls();
  std::int64_t sum = test_world().rank();
  auto pending = nccl->all_reduce({&sum, 1, DType::int64, comm::Place::host}, Purpose::control, 0);
  EXPECT_ON_ALL_RANKS(sum == test_world().size() * (test_world().size() - 1) / 2) << "before any wait";
  pending.wait();
  EXPECT_EQ(nccl_calls().collectives, before.collectives);
}

TEST_F(NcclQueue, NothingIsLeftBehind) {
  const auto before = nccl_calls();
  {
    const auto nccl = make_nccl(*device_);
    const auto half = nccl->split(0, "again");
    EXPECT_EQ(nccl_calls().live - before.live, 2);
    half->barrier().wait();
  }
  EXPECT_EQ(nccl_calls().live, before.live);
  EXPECT_EQ(nccl_calls().aborted, before.aborted);
}

TEST_F(NcclQueue, InitialisationThatTakesItsTimeIsWaitedFor) {
  plant_nccl_fault(NcclFault::init_late);
  const auto nccl = make_nccl(*device_);
  plant_nccl_fault(NcclFault::none);
  nccl->barrier().wait();
  EXPECT_ON_ALL_RANKS(nccl->size() == test_world().size());
}

}  // namespace
}  // namespace shardmark::testing
