// The values that results are held to: exact in every type at any number of ranks, and unlike each other.

#include "app/bench/values.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "app/bench/buffers.hpp"
#include "comm/thread_communicator.hpp"
#include "device/host_device.hpp"
#include "tests/support/rank_data.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::app::bench {
namespace {

using base::DType;
using comm::Operation;
using comm::Reduction;
using testing::Elements;

constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp64, DType::int64, DType::uint8};

Elements elements_of(const Values& values, DType dtype, std::int64_t count, std::int64_t first = 0) {
  Elements elements(dtype, count);
  values.write(elements.buffer(), first);
  return elements;
}

/// In the type of the elements, rounded.
void add(Elements& sum, const Elements& other) {
  for (std::int64_t i = 0; i < sum.count; ++i) {
    if (sum.dtype == DType::int64) {  // more digits than a double has
      std::int64_t a = 0;
      std::int64_t b = 0;
      std::memcpy(&a, sum.bytes.data() + i * 8, 8);
      std::memcpy(&b, other.bytes.data() + i * 8, 8);
      a += b;
      std::memcpy(sum.bytes.data() + i * 8, &a, 8);
    } else {
      sum.set(i, sum.get(i) + other.get(i));
    }
  }
}

TEST(Values, SumsOverRanksAreExactInTheTypeAndInAnyOrder) {
  // 300 ranks: more than bf16 and uint8 count exactly one by one. A type's own additions, one after the other and rounded each
  // time as a library may do it, must give the same bits as the sum of whole numbers.
  constexpr std::int64_t kCount = 500;
  for (const int ranks : {1, 2, 3, 7, 64, 300}) {
    for (const auto dtype : kDTypes) {
      const ValueKind kind{dtype, 5, ranks};
      Elements sum = elements_of(values_of(kind, ranks - 1, kCount), dtype, kCount);
      for (int rank = ranks - 2; rank >= 0; --rank) {
        const Elements other = elements_of(values_of(kind, rank, kCount), dtype, kCount);
        add(sum, other);
      }
      EXPECT_EQ(reduced_values(kind, Reduction::sum, kCount).count_wrong(sum.buffer(), 0), 0)
          << base::name_of(dtype) << " over " << ranks;
    }
  }
}

TEST(Values, EveryRankCountsInSomeElements) {
  for (const auto dtype : kDTypes) {
    for (int rank = 0; rank < 300; ++rank) {
      const Elements mine = elements_of(values_of({dtype, 5, 300}, rank, 500), dtype, 500);
      std::int64_t others = 0;
      for (std::int64_t i = 0; i < 500; ++i) {
        others += mine.get(i) != 0 ? 1 : 0;
      }
      EXPECT_GT(others, 100) << base::name_of(dtype) << ": rank " << rank << " would not be missed";
    }
  }
}

TEST(Values, RanksElementsAndGroupsDiffer) {
  constexpr std::int64_t kCount = 1000;
  const Elements mine = elements_of(values_of({DType::fp32, 0, 1}, 0, kCount), DType::fp32, kCount);
  std::set<double> distinct;
  for (std::int64_t i = 0; i < kCount; ++i) {
    distinct.insert(mine.get(i));
  }
  EXPECT_GT(distinct.size(), 990U);
  // Of 1000 numbers out of 2^25 one may be equal by chance, no more.
  EXPECT_GE(values_of({DType::fp32, 0, 1}, 1, kCount).count_wrong(Elements(mine).buffer(), 0), kCount - 1);
  EXPECT_GE(values_of({DType::fp32, 1, 1}, 0, kCount).count_wrong(Elements(mine).buffer(), 0), kCount - 1);
}

TEST(Values, RepeatAfterThePeriodFromAnyFirstElement) {
  const std::int64_t count = kPeriod + 10;
  const auto values = values_of({DType::fp32, 0, 1}, 0, count);
  Elements long_row = elements_of(values, DType::fp32, count);
  EXPECT_EQ(long_row.get(kPeriod + 3), long_row.get(3));
  const std::int64_t first = kPeriod - 5;
  Elements tail = elements_of(values, DType::fp32, 15, first);
  for (std::int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(tail.get(i), long_row.get(first + i));
  }
  EXPECT_EQ(values.count_wrong(tail.buffer(), first), 0);
  EXPECT_GT(values.count_wrong(tail.buffer(), first + 1), 10);
  tail.set(0, 0.5);
  tail.set(14, 0.5);
  EXPECT_EQ(values.count_wrong(tail.buffer(), first), 2);
}

/// Every case over ranks as threads: right after a call, wrong where `spoil` was at work on rank 0.
void expect_trial(const Case& the_case, int size, bool spoil) {
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(size));
  testing::on_threads(size, [&](int rank, comm::Communicator& all) {
    const auto device = device::make_host_device();
    Memory memory(the_case.message_bytes(), *device);
    const Trial trial(memory, the_case, {rank, size, 3}, comm::SumOrder::fast);
    trial.fill();
    all.wait(all.start(trial.collective()));
    if (spoil && rank == 0) {
      trial.flip_bit(the_case.count);  // wraps: there are not so many
    }
    wrong[static_cast<std::size_t>(rank)] = trial.count_wrong();
    all.barrier().wait();
  });
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(wrong[static_cast<std::size_t>(rank)], spoil && rank == 0 ? 1 : 0)
        << name_of(the_case.operation) << " over " << size << ", in place " << the_case.in_place << ", rank " << rank;
  }
}

TEST(Trial, IsRightAfterACallAndWrongByOneFlippedBit) {
  for (int size = 1; size <= 4; ++size) {
    for (const auto operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather, Operation::broadcast,
                                 Operation::all_to_all, Operation::send_receive}) {
      for (const std::int64_t in_place : {0, 1}) {
        const Case the_case{operation, DType::bf16, Reduction::min, in_place, message_count(operation, 200, DType::bf16, size)};
        expect_trial(the_case, size, false);
        expect_trial(the_case, size, true);
      }
    }
  }
}

TEST(Trial, NothingThatWasThereBeforePassesForAResult) {
  // Without a call, all that another rank must have sent is wrong: here of 2 ranks, as rank 1.
  for (const auto operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather, Operation::broadcast,
                               Operation::all_to_all, Operation::send_receive}) {
    const Case the_case{operation, DType::fp32, Reduction::sum, 0, 64};
    const auto device = device::make_host_device();
    Memory memory(the_case.message_bytes(), *device);
    const Trial trial(memory, the_case, {1, 2, 0}, comm::SumOrder::fast);
    trial.fill();
    // A sum may leave an element as it is where the other rank holds a 0: none does of the 64 here.
    EXPECT_GE(trial.count_wrong(), operation == Operation::reduce_scatter ? 32 : 64) << name_of(operation);
    trial.clear();
    EXPECT_GT(trial.count_wrong(), 0) << name_of(operation);
  }
}

}  // namespace
}  // namespace shardmark::app::bench
