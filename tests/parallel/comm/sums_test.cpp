// Sums over ranks: equal, bit for bit, to a serial tree computed here, whatever the size, dtype and cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "tests/parallel/comm/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::MpiOptions;
using comm::Purpose;
using comm::Reduction;
using comm::SumOrder;

/// How an operation is cut into messages.
struct Cut {
  const char* name;
  MpiOptions options;
};

const Cut kCuts[] = {
    {"whole", {}},
    {"chunks_of_7", {.max_chunk_elements = 7}},
    {"direct", {.small_bytes = 0}},
    {"direct_4KiB_window_2", {.chunk_bytes = 4096, .small_bytes = 0, .window = 2, .lanes = 1}},
};

class Sums : public ::testing::TestWithParam<std::tuple<DType, std::int64_t, Cut>> {};

TEST_P(Sums, AllReduceEqualsTheSerialTree) {
  const auto& [dtype, count, cut] = GetParam();
  const auto communicator = make_mpi(cut.options);
  Elements mine = rank_values(dtype, count, communicator->rank());
  communicator->all_reduce(mine.buffer(), Purpose::gradient, 1, SumOrder::ordered).wait();
  EXPECT_ON_ALL_RANKS(mine == expected_sum(dtype, count, communicator->size()));
}

TEST_P(Sums, ReduceScatterEqualsTheSerialTree) {
  const auto& [dtype, count, cut] = GetParam();
  const auto communicator = make_mpi(cut.options);
  const std::int64_t whole = count * communicator->size();
  Elements mine = rank_values(dtype, whole, communicator->rank());
  const Elements before = mine;
  Elements part(dtype, count);
  communicator->reduce_scatter(mine.buffer(), part.buffer(), Purpose::gradient, 1, SumOrder::ordered).wait();
  const Elements all = expected_sum(dtype, whole, communicator->size());
  bool equal = true;
  for (std::int64_t i = 0; i < count; ++i) {
    equal = equal && part.get(i) == all.get(communicator->rank() * count + i);
  }
  EXPECT_ON_ALL_RANKS(equal);
  EXPECT_ON_ALL_RANKS(mine == before);
}

TEST_P(Sums, ReduceScatterInPlaceGivesTheSame) {
  const auto& [dtype, count, cut] = GetParam();
  const auto communicator = make_mpi(cut.options);
  const std::int64_t whole = count * communicator->size();
  Elements mine = rank_values(dtype, whole, communicator->rank());
  const std::int64_t begin = communicator->rank() * count;
  communicator->reduce_scatter(mine.buffer(), mine.part(begin, count), Purpose::gradient, 1, SumOrder::fast).wait();
  const Elements all = expected_sum(dtype, whole, communicator->size());
  const Elements before = rank_values(dtype, whole, communicator->rank());
  bool equal = true;
  for (std::int64_t i = 0; i < whole; ++i) {
    const bool own = i >= begin && i < begin + count;
    equal = equal && mine.get(i) == (own ? all : before).get(i);
  }
  EXPECT_ON_ALL_RANKS(equal);
}

TEST(HalfTree, Bf16ReceivedInFp32IsTheUnroundedSum) {
  for (const std::int64_t count : {0, 1, 20, 1009, 300'011}) {
    const auto communicator = make_mpi();
    const std::int64_t whole = count * communicator->size();
    Elements narrow = rank_values(DType::bf16, whole, communicator->rank());
    Elements wide(DType::fp32, whole);
    for (std::int64_t i = 0; i < whole; ++i) {
      wide.set(i, narrow.get(i));
    }
    Elements found(DType::fp32, count);
    Elements expected(DType::fp32, count);
    communicator->reduce_scatter(narrow.buffer(), found.buffer(), Purpose::gradient, 1, SumOrder::ordered).wait();
    communicator->reduce_scatter(wide.buffer(), expected.buffer(), Purpose::gradient, 2, SumOrder::ordered).wait();
    EXPECT_ON_ALL_RANKS(found == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Sums,
                         ::testing::Combine(::testing::Values(DType::fp32, DType::bf16, DType::fp64, DType::int64),
                                            ::testing::Values(0, 1, 20, 1009, 30011), ::testing::ValuesIn(kCuts)),
                         [](const auto& instance) {
                           return std::string(base::name_of(std::get<0>(instance.param))) + "_" +
                                  std::to_string(std::get<1>(instance.param)) + "_" + std::get<2>(instance.param).name;
                         });

TEST(LargeSum, ManyRoundsEqualTheSerialTree) {
  const auto communicator = make_mpi();
  constexpr std::int64_t kCount = 2'000'003;  // several chunks a rank, and a ragged end
  Elements mine = rank_values(DType::fp32, kCount, communicator->rank());
  communicator->all_reduce(mine.buffer(), Purpose::gradient, 1).wait();
  EXPECT_ON_ALL_RANKS(mine == expected_sum(DType::fp32, kCount, communicator->size()));
}

TEST(LibrarySum, IsNearTheTreeAndEqualOnAllRanks) {
  const auto communicator = make_mpi({.max_chunk_elements = 100, .library_from = 1});
  constexpr std::int64_t kCount = 1009;
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    Elements mine = rank_values(dtype, kCount, communicator->rank());
    communicator->all_reduce(mine.buffer(), Purpose::gradient, 1, SumOrder::fast).wait();
    const Elements tree = expected_sum(dtype, kCount, communicator->size());
    // Three additions of values below 2^14 in fp32: each rounds by at most 2^14 x 2^-24.
    const double tolerance = 3 * std::ldexp(1.0, -10);
    bool near = true;
    for (std::int64_t i = 0; i < kCount; ++i) {
      near = near && std::abs(mine.get(i) - tree.get(i)) <= tolerance;
    }
    EXPECT_ON_ALL_RANKS(near);
    const auto all = test_world().all_gather(mine.bytes);
    EXPECT_ON_ALL_RANKS(all.front() == mine.bytes);
  }
}

TEST(Extremes, MaxAndMinOverRanks) {
  const auto communicator = make_mpi();
  for (const std::int64_t count : {5, 40007}) {
    std::vector<Elements> all;
    for (int r = 0; r < communicator->size(); ++r) {
      all.push_back(rank_values(DType::fp32, count, r));
    }
    for (const Reduction reduction : {Reduction::max, Reduction::min}) {
      Elements mine = all[static_cast<std::size_t>(communicator->rank())];
      communicator->all_reduce(mine.buffer(), Purpose::control, 1, SumOrder::fast, reduction).wait();
      bool equal = true;
      for (std::int64_t i = 0; i < count; ++i) {
        double extreme = all.front().get(i);
        for (const Elements& rank : all) {
          extreme = reduction == Reduction::max ? std::max(extreme, rank.get(i)) : std::min(extreme, rank.get(i));
        }
        equal = equal && mine.get(i) == extreme;
      }
      EXPECT_ON_ALL_RANKS(equal);
    }
  }
}

TEST(Extremes, ANanOnOneRankReachesAll) {
  const auto communicator = make_mpi();
  for (int owner = 0; owner < communicator->size(); ++owner) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      Elements mine(DType::fp32, 3);
      mine.set(1, communicator->rank() == owner ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      communicator->all_reduce(mine.buffer(), Purpose::control, 1, SumOrder::fast, reduction).wait();
      EXPECT_ON_ALL_RANKS(std::isnan(mine.get(1)) && mine.get(0) == 0 && mine.get(2) == 0);
    }
  }
}

}  // namespace
}  // namespace shardmark::testing
