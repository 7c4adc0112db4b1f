// Collectives that move data: every element arrives where it belongs, nothing else is touched.

#include <gtest/gtest.h>

#include <tuple>

#include "base/clock.hpp"
#include "tests/parallel/comm/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::Purpose;

/// Element i of what `rank` owns.
double owned(int rank, std::int64_t i) {
  return static_cast<double>((rank * 37 + i) % 101);
}

class Moves : public ::testing::TestWithParam<std::tuple<DType, std::int64_t, std::int64_t>> {
 protected:
  [[nodiscard]] static comm::MpiOptions options() { return {.max_chunk_elements = std::get<2>(GetParam())}; }
};

TEST_P(Moves, AllGather) {
  const auto& [dtype, count, chunk] = GetParam();
  const auto communicator = make_mpi(options());
  const int rank = communicator->rank();
  for (const bool in_place : {false, true}) {
    Elements all(dtype, count * communicator->size());
    Elements apart(dtype, count);
    const comm::Buffer send = in_place ? all.part(rank * count, count) : apart.buffer();
    for (std::int64_t i = 0; i < count; ++i) {
      (in_place ? all : apart).set(in_place ? rank * count + i : i, owned(rank, i));
    }
    communicator->all_gather(send, all.buffer(), Purpose::parameter, 1).wait();
    bool equal = true;
    for (std::int64_t i = 0; i < all.count; ++i) {
      equal = equal && all.get(i) == owned(static_cast<int>(i / count), i % count);
    }
    EXPECT_ON_ALL_RANKS(equal);
  }
}

TEST_P(Moves, AllToAll) {
  const auto& [dtype, count, chunk] = GetParam();
  const auto communicator = make_mpi(options());
  const int size = communicator->size();
  Elements send(dtype, count * size);
  Elements receive(dtype, count * size);
  for (std::int64_t i = 0; i < send.count; ++i) {
    send.set(i, owned(communicator->rank(), i));
  }
  communicator->all_to_all(send.buffer(), receive.buffer(), Purpose::buffer, 1).wait();
  bool equal = true;
  for (std::int64_t i = 0; i < receive.count; ++i) {
    const int from = static_cast<int>(i / count);
    equal = equal && receive.get(i) == owned(from, communicator->rank() * count + i % count);
  }
  EXPECT_ON_ALL_RANKS(equal);
}

TEST_P(Moves, BroadcastFromEveryRoot) {
  const auto& [dtype, count, chunk] = GetParam();
  const auto communicator = make_mpi(options());
  for (int root = 0; root < communicator->size(); ++root) {
    Elements data(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) {
      data.set(i, communicator->rank() == root ? owned(root, i) : 3);
    }
    communicator->broadcast(data.buffer(), root, Purpose::parameter, 1).wait();
    bool equal = true;
    for (std::int64_t i = 0; i < count; ++i) {
      equal = equal && data.get(i) == owned(root, i);
    }
    EXPECT_ON_ALL_RANKS(equal);
  }
}

TEST_P(Moves, SendReceiveByEveryNumberOfPlaces) {
  const auto& [dtype, count, chunk] = GetParam();
  const auto communicator = make_mpi(options());
  const int size = communicator->size();
  const int rank = communicator->rank();
  for (int ahead = 0; ahead < size; ++ahead) {
    Elements send(dtype, count);
    Elements receive(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) {
      send.set(i, owned(rank, i));
      receive.set(i, 3);
    }
    communicator->send_receive(send.buffer(), receive.buffer(), ahead, Purpose::buffer, 1).wait();
    bool equal = true;
    for (std::int64_t i = 0; i < count; ++i) {
      equal = equal && receive.get(i) == owned((rank - ahead + size) % size, i) && send.get(i) == owned(rank, i);
    }
    EXPECT_ON_ALL_RANKS(equal);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Moves,
                         ::testing::Combine(::testing::Values(DType::fp32, DType::bf16, DType::fp64, DType::int64,
                                                              DType::uint8),
                                            ::testing::Values(0, 1, 20, 1009), ::testing::Values(0, 7)),
                         [](const auto& instance) {
                           return std::string(base::name_of(std::get<0>(instance.param))) + "_" +
                                  std::to_string(std::get<1>(instance.param)) +
                                  (std::get<2>(instance.param) == 0 ? "" : "_chunks_of_7");
                         });

TEST(LargeMove, AllGatherOfManyRounds) {
  const auto communicator = make_mpi();
  constexpr std::int64_t kCount = 700'001;
  Elements all(DType::fp32, kCount * communicator->size());
  for (std::int64_t i = 0; i < kCount; ++i) {
    all.set(communicator->rank() * kCount + i, owned(communicator->rank(), i));
  }
  communicator->all_gather(all.part(communicator->rank() * kCount, kCount), all.buffer(), Purpose::parameter, 1).wait();
  bool equal = true;
  for (std::int64_t i = 0; i < all.count; ++i) {
    equal = equal && all.get(i) == owned(static_cast<int>(i / kCount), i % kCount);
  }
  EXPECT_ON_ALL_RANKS(equal);
}

TEST(Barrier, NobodyLeavesBeforeTheLastOneComes) {
  const auto communicator = make_mpi();
  for (int late = 0; late < communicator->size(); ++late) {
    // The clock is that of the machine, so ranks of one node may compare it.
    double arrived_s = 0;
    if (communicator->rank() == late) {
      const double until_s = base::now_s() + 0.02;
      while (base::now_s() < until_s) {
        communicator->progress();
      }
      arrived_s = base::now_s();
    }
    communicator->barrier().wait();
    const double left_s = base::now_s();
    if (test_world().num_nodes() == 1) {
      Elements latest(DType::fp64, 1);
      latest.set(0, arrived_s);
      communicator->broadcast(latest.buffer(), late, Purpose::control, 0).wait();
      EXPECT_ON_ALL_RANKS(left_s >= latest.get(0));
    }
  }
}

}  // namespace
}  // namespace shardmark::testing
