// Ranks as threads: every collective against what the data say, the queue, splitting, counting, and how failures show. The
// thread sanitizer runs this program too (tests/scripts/test_thread_sanitizer_slow.py).

#include "comm/thread_communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/counting_communicator.hpp"
#include "tests/support/rank_data.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::comm {
namespace {

using base::DType;
using testing::Elements;
using testing::on_threads;
using testing::rank_values;

constexpr std::int64_t kCount = 1009;  // prime: no part is even

Elements slice(const Elements& all, std::int64_t begin, std::int64_t count) {
  Elements part(all.dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    part.set(i, all.get(begin + i));
  }
  return part;
}

template <typename E>
std::string message_of(const std::exception_ptr& thrown) {
  try {
    if (thrown != nullptr) {
      std::rethrow_exception(thrown);
    }
  } catch (const E& error) {
    return error.what();
  } catch (...) {
  }
  return "";
}

class Threads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, ::testing::Values(1, 2, 3, 4, 9), ::testing::PrintToStringParamName());

TEST_P(Threads, SumsAreTheTreesBitForBit) {
  const int size = GetParam();
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64, DType::int64}) {
    for (const std::int64_t part : {0L, 1L, kCount}) {
      const Elements expected = testing::expected_sum(dtype, part * size, size);
      const Elements odd = testing::expected_sum(dtype, part, size);
      for (const SumOrder order : {SumOrder::ordered, SumOrder::fast}) {
        on_threads(size, [&](int rank, Communicator& all) {
          Elements whole = rank_values(dtype, part * size, rank);
          Elements into(dtype, part);
          all.reduce_scatter(whole.buffer(), into.buffer(), Purpose::gradient, 1, order).wait();
          EXPECT_EQ(into, slice(expected, rank * part, part));
          all.reduce_scatter(whole.buffer(), whole.part(rank * part, part), Purpose::gradient, 2, order).wait();
          EXPECT_EQ(slice(whole, rank * part, part), into) << "receive is a part of send";
          Elements uneven = rank_values(dtype, part, rank);
          all.all_reduce(uneven.buffer(), Purpose::gradient, 3, order).wait();
          EXPECT_EQ(uneven, odd) << part << " elements over " << size;
        });
      }
    }
  }
}

TEST_P(Threads, LargestAndSmallest) {
  const int size = GetParam();
  on_threads(size, [&](int rank, Communicator& all) {
    double largest = rank;
    double smallest = rank;
    all.all_reduce({&largest, 1, DType::fp64}, Purpose::control, 0, SumOrder::ordered, Reduction::max).wait();
    all.all_reduce({&smallest, 1, DType::fp64}, Purpose::control, 0, SumOrder::ordered, Reduction::min).wait();
    EXPECT_EQ(largest, size - 1);
    EXPECT_EQ(smallest, 0);
  });
}

TEST_P(Threads, MovesPutEveryPartInItsPlace) {
  const int size = GetParam();
  on_threads(size, [&](int rank, Communicator& all) {
    Elements own = rank_values(DType::bf16, kCount, rank);
    Elements whole(DType::bf16, kCount * size);
    all.all_gather(own.buffer(), whole.buffer(), Purpose::parameter, 1).wait();
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(slice(whole, other * kCount, kCount), rank_values(DType::bf16, kCount, other));
    }
    Elements in_place(DType::bf16, kCount * size);
    for (std::int64_t i = 0; i < kCount; ++i) {
      in_place.set(rank * kCount + i, own.get(i));
    }
    all.all_gather(in_place.part(rank * kCount, kCount), in_place.buffer(), Purpose::parameter, 2).wait();
    EXPECT_EQ(in_place, whole) << "send is a part of receive";
    // Part p of rank r is r x size + p.
    std::vector<std::int64_t> send;
    for (int p = 0; p < size; ++p) {
      send.push_back(rank * size + p);
    }
    std::vector<std::int64_t> receive(send.size());
    all.all_to_all({send.data(), size, DType::int64}, {receive.data(), size, DType::int64}, Purpose::buffer, 3).wait();
    for (int p = 0; p < size; ++p) {
      EXPECT_EQ(receive[static_cast<std::size_t>(p)], p * size + rank);
    }
    for (int root = 0; root < size; ++root) {
      Elements sent = rank_values(DType::fp32, kCount, rank);
      all.broadcast(sent.buffer(), root, Purpose::buffer, 4).wait();
      EXPECT_EQ(sent, rank_values(DType::fp32, kCount, root));
    }
    for (int ahead = 0; ahead < size; ++ahead) {
      Elements sent = rank_values(DType::bf16, kCount, rank);
      Elements received(DType::bf16, kCount);
      all.send_receive(sent.buffer(), received.buffer(), ahead, Purpose::buffer, 5).wait();
      EXPECT_EQ(received, rank_values(DType::bf16, kCount, (rank + size - ahead) % size)) << ahead << " ahead";
    }
  });
}

TEST_P(Threads, AQueueOfManyCompletesInOrderAndUnderProgress) {
  const int size = GetParam();
  constexpr int kMany = 40;
  on_threads(size, [&](int rank, Communicator& all) {
    std::vector<std::vector<float>> buffers(kMany, std::vector<float>(17, static_cast<float>(rank + 1)));
    std::vector<Pending> pending;
    for (int i = 0; i < kMany; ++i) {
      pending.push_back(all.all_reduce({buffers[static_cast<std::size_t>(i)].data(), 17}, Purpose::gradient, i));
      EXPECT_EQ(pending.back().ticket(), i + 1) << "tickets count up from 1";
      if (i % (rank + 1) == 0) {
        all.progress();
      }
    }
    pending[kMany / 2].wait();
    for (int i = 0; i <= kMany / 2; ++i) {
      EXPECT_TRUE(pending[static_cast<std::size_t>(i)].done()) << "operations complete in order";
    }
    while (!pending.back().done()) {
    }
    for (const auto& buffer : buffers) {
      EXPECT_EQ(buffer, std::vector<float>(17, static_cast<float>(size * (size + 1) / 2)));
    }
    EXPECT_THROW(static_cast<void>(all.test(kMany + 1)), base::InvariantError);
  });
}

TEST_P(Threads, ABarrierHoldsUntilAllHaveCome) {
  const int size = GetParam();
  std::atomic<int> come = 0;
  on_threads(size, [&](int /*rank*/, Communicator& all) {
    for (int round = 1; round <= 20; ++round) {
      ++come;
      all.barrier(round).wait();
      EXPECT_GE(come.load(), round * size);
      all.barrier(round).wait();
    }
  });
}

TEST_P(Threads, SplitsAgainAndAgain) {
  const int size = GetParam();
  on_threads(size, [&](int rank, Communicator& all) {
    for (int round = 0; round < 10; ++round) {
      const int color = (rank + round) % 2;
      auto half = all.split(color, "half");
      auto alone = half->split(half->rank(), "alone");
      EXPECT_EQ(alone->size(), 1);
      EXPECT_EQ(half->name(), "half");
      std::int64_t members = 0;
      for (int other = 0; other < size; ++other) {
        members += (other + round) % 2 == color ? 1 : 0;
      }
      ASSERT_EQ(half->size(), members);
      std::vector<std::int64_t> ranks(static_cast<std::size_t>(members));
      std::int64_t mine = rank;
      half->all_gather({&mine, 1, DType::int64}, {ranks.data(), members, DType::int64}, Purpose::control, 0).wait();
      for (std::int64_t place = 0; place < members; ++place) {
        EXPECT_EQ((ranks[static_cast<std::size_t>(place)] + round) % 2, color);
        EXPECT_TRUE(place == 0 || ranks[static_cast<std::size_t>(place)] > ranks[static_cast<std::size_t>(place - 1)])
            << "ordered by rank in the group that was split";
      }
      EXPECT_EQ(ranks[static_cast<std::size_t>(half->rank())], rank);
    }
    EXPECT_THROW(static_cast<void>(all.split(-1, "none")), base::InvariantError);
  });
}

TEST_P(Threads, TheCountingDecoratorCountsOnEveryRankByItself) {
  const int size = GetParam();
  auto communicators = make_thread_communicators(size);
  std::vector<std::unique_ptr<CountingCommunicator>> counting;
  for (auto& each : communicators) {
    counting.push_back(std::make_unique<CountingCommunicator>(std::move(each)));
  }
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto& own = *counting[static_cast<std::size_t>(rank)];
        std::vector<float> whole(static_cast<std::size_t>(12 * size), 1.0F);
        std::vector<float> part(12);
        std::vector<Pending> pending;
        for (int step = 0; step < 5; ++step) {
          pending.push_back(own.reduce_scatter({whole.data(), 12 * size}, {part.data(), 12}, Purpose::gradient, step));
          own.progress();
          pending.back().wait();
        }
        own.split(0, "again")->barrier().wait();
      });
    }
  }
  for (const auto& own : counting) {
    const auto rows = own->counts().rows();
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].operation, Operation::reduce_scatter);
    EXPECT_EQ(rows[0].count, 5);
    // Design: (g-1)/g S a call, S = 4 x 12 g bytes.
    EXPECT_DOUBLE_EQ(rows[0].wire_bytes, 5 * 48.0 * (size - 1));
    EXPECT_EQ(rows[1].group, "again");
    EXPECT_FALSE(std::isnan(rows[0].median_s)) << "every call was seen to end";
  }
}

TEST(ThreadFailures, DescriptionsThatDifferAreAMismatchOnEveryRank) {
  std::vector<std::vector<float>> buffers(3, std::vector<float>(8));
  const auto thrown = testing::outcomes_on_threads(3, [&](int rank, Communicator& all) {
    all.all_reduce({buffers[static_cast<std::size_t>(rank)].data(), rank == 2 ? 7 : 8}, Purpose::gradient, 5).wait();
  });
  for (const auto& each : thrown) {
    const auto text = message_of<base::MismatchError>(each);
    EXPECT_NE(
        text.find("rank 0 started all_reduce sum fast, fp32, 8 elements, gradient, tag 5, rank 2 all_reduce sum fast, fp32, 7"),
        std::string::npos)
        << text;
  }
}

TEST(ThreadFailures, ADeadlineNamesTheOperationAndTheSilentRank) {
  std::vector<std::vector<float>> buffers(3, std::vector<float>(8));
  std::atomic<bool> over = false;
  const auto thrown = testing::outcomes_on_threads(
      3,
      [&](int rank, Communicator& all) {
        if (rank == 1) {
          while (!over) {
            std::this_thread::yield();
          }
          static_cast<void>(all.barrier());  // throws: the group failed
          return;
        }
        try {
          all.all_reduce({buffers[static_cast<std::size_t>(rank)].data(), 8}, Purpose::gradient, 5).wait();
        } catch (...) {
          over = true;
          throw;
        }
      },
      {.deadline_s = 0.05});
  const auto first = message_of<base::DeadlineError>(thrown[0]) + message_of<base::DeadlineError>(thrown[2]);
  EXPECT_NE(
      first.find("operation 1 of group world (all_reduce sum fast, fp32, 8 elements, gradient, tag 5) passed its deadline "
                 "of 0.05 s; silent: rank 1"),
      std::string::npos)
      << first;
  EXPECT_NE(message_of<base::RemoteError>(thrown[1]).find("passed its deadline"), std::string::npos);
}

TEST(ThreadFailures, ARankThatLeavesEndsTheOthersWaits) {
  std::vector<std::vector<float>> buffers(3, std::vector<float>(8));
  const double started_s = base::now_s();
  const auto thrown = testing::outcomes_on_threads(3, [&](int rank, Communicator& all) {
    all.barrier().wait();
    if (rank != 1) {
      all.all_reduce({buffers[static_cast<std::size_t>(rank)].data(), 8}, Purpose::gradient, 5).wait();
    }
  });
  EXPECT_EQ(thrown[1], nullptr);
  EXPECT_NE(message_of<base::RemoteError>(thrown[0]).find("rank 1 of group world left before operation 2 was complete"),
            std::string::npos);
  EXPECT_NE(message_of<base::RemoteError>(thrown[2]).find("rank 1 of group world left"), std::string::npos);
  EXPECT_LT(base::now_s() - started_s, ThreadOptions{}.deadline_s) << "nobody waited for the deadline";
}

TEST(ThreadFailures, SplitWithOperationsInFlightIsRefused) {
  std::vector<std::vector<float>> buffers(2, std::vector<float>(8));
  const auto thrown = testing::outcomes_on_threads(2, [&](int rank, Communicator& all) {
    if (rank == 0) {
      static_cast<void>(all.all_reduce({buffers[0].data(), 8}, Purpose::gradient, 0));
      static_cast<void>(all.split(0, "early"));
    }
  });
  EXPECT_NE(message_of<base::InvariantError>(thrown[0]).find("split while operations are in flight"), std::string::npos);
}

}  // namespace
}  // namespace shardmark::comm
