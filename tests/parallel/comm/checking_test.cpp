// A mismatch is a MismatchError on every rank, naming both sides: not a hang, not a wrong number.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.hpp"
#include "tests/parallel/comm/fixture.hpp"

namespace shardmark::testing {
namespace {

using base::DType;
using comm::Communicator;
using comm::Purpose;
using comm::Reduction;
using comm::SumOrder;

/// Runs `step`; the message of the MismatchError that it must throw, "" if it throws none.
std::string mismatch_of(const std::function<void()>& step) {
  try {
    step();
  } catch (const base::MismatchError& error) {
    return error.what();
  }
  return "";
}

/// The last rank asks in its own way, the others alike.
void expect_mismatch(const std::function<void(Communicator&)>& usual, const std::function<void(Communicator&)>& odd,
                     const std::string& usual_text, const std::string& odd_text) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  const auto communicator = make_checked();
  const int last = communicator->size() - 1;
  communicator->barrier().wait();
  const std::string message = mismatch_of([&] { (communicator->rank() == last ? odd : usual)(*communicator); });
  EXPECT_ON_ALL_RANKS(message.find(usual_text) != std::string::npos) << message;
  EXPECT_ON_ALL_RANKS(message.find("rank " + std::to_string(last) + ": " + odd_text) != std::string::npos) << message;
  EXPECT_ON_ALL_RANKS(message.find("number 2 differs") != std::string::npos) << message;
  EXPECT_THROW(communicator->barrier().wait(), base::InvariantError);  // nothing goes on after it
}

std::function<void(Communicator&)> sum_of(DType dtype, std::int64_t count, std::int64_t tag,
                                          Reduction reduction = Reduction::sum, SumOrder order = SumOrder::fast) {
  return [=](Communicator& communicator) {
    Elements data(dtype, count);
    communicator.all_reduce(data.buffer(), Purpose::gradient, tag, order, reduction).wait();
  };
}

TEST(Checking, OtherReduction) {
  expect_mismatch(sum_of(DType::fp32, 8, 3), sum_of(DType::fp32, 8, 3, Reduction::max),
                  "all_reduce sum fast, fp32, 8 elements, gradient, tag 3", "all_reduce max fast, fp32, 8 elements, gradient");
}

TEST(Checking, OtherOrderOfAdditions) {
  expect_mismatch(sum_of(DType::fp32, 8, 3), sum_of(DType::fp32, 8, 3, Reduction::sum, SumOrder::ordered), "sum fast",
                  "all_reduce sum ordered");
}

TEST(Checking, OtherCount) {
  expect_mismatch(sum_of(DType::fp32, 100'000, 3), sum_of(DType::fp32, 99'999, 3), "100000 elements",
                  "all_reduce sum fast, fp32, 99999 elements");
}

TEST(Checking, OtherDType) {
  expect_mismatch(sum_of(DType::fp32, 8, 3), sum_of(DType::bf16, 16, 3), "fp32, 8 elements",
                  "all_reduce sum fast, bf16, 16 elements");
}

TEST(Checking, OtherTag) {
  expect_mismatch(sum_of(DType::fp32, 8, 3), sum_of(DType::fp32, 8, 4), "tag 3",
                  "all_reduce sum fast, fp32, 8 elements, gradient, tag 4");
}

TEST(Checking, OtherOperation) {
  const auto barrier = [](Communicator& communicator) { communicator.barrier(9).wait(); };
  expect_mismatch(sum_of(DType::fp32, 8, 3), barrier, "all_reduce sum", "barrier, control, tag 9");
}

TEST(Checking, OtherRoot) {
  const auto from = [](int root) {
    return [root](Communicator& communicator) {
      Elements data(DType::fp32, 4);
      communicator.broadcast(data.buffer(), root, Purpose::parameter, 1).wait();
    };
  };
  expect_mismatch(from(0), from(1 % test_world().size()), "root 0", "broadcast, fp32, 4 elements, root 1");
}

TEST(Checking, OtherDistance) {
  const auto by = [](int ahead) {
    return [ahead](Communicator& communicator) {
      Elements send(DType::bf16, 4);
      Elements receive(DType::bf16, 4);
      communicator.send_receive(send.buffer(), receive.buffer(), ahead, Purpose::buffer, 1).wait();
    };
  };
  expect_mismatch(by(0), by(1 % test_world().size()), "0 ahead", "send_receive, bf16, 4 elements of 4, 1 ahead");
}

TEST(Checking, OneRankLeavesOneOut) {
  const auto two = [](Communicator& communicator) {
    sum_of(DType::fp32, 8, 3)(communicator);
    sum_of(DType::fp32, 8, 4)(communicator);
  };
  expect_mismatch(two, sum_of(DType::fp32, 8, 4), "tag 3", "all_reduce sum fast, fp32, 8 elements, gradient, tag 4");
}

TEST(Checking, AMismatchShowsWhileAnEarlierCollectiveIsWaitedFor) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  const auto communicator = make_checked();
  Elements large = rank_values(DType::fp32, 1'000'003, communicator->rank());
  Elements small(DType::fp32, 4);
  const std::string message = mismatch_of([&] {
    auto first = communicator->all_reduce(large.buffer(), Purpose::gradient, 1);
    auto second = communicator->all_reduce(small.buffer(), Purpose::gradient, communicator->rank() == 0 ? 2 : 3);
    first.wait();
    second.wait();
  });
  EXPECT_ON_ALL_RANKS(message.find("number 2 differs between ranks: rank 0:") != std::string::npos) << message;
}

TEST(Checking, AGroupNamesWorldRanks) {
  const int size = test_world().size();
  if (size < 3) {
    GTEST_SKIP() << "needs a group of two whose ranks are not 0 and 1";
  }
  const auto communicator = make_checked();
  const bool member = communicator->rank() >= size - 2;
  const auto group = communicator->split(member ? 1 : 0, "last two");
  const bool odd = communicator->rank() == size - 1;
  const std::string message = mismatch_of([&] { sum_of(DType::fp32, 8, odd ? 1 : 2)(*group); });
  const std::string side = "rank " + std::to_string(size - 1) + ": all_reduce";
  EXPECT_ON_ALL_RANKS(member ? message.find(side) != std::string::npos : message.empty()) << message;
}

TEST(Checking, PlantedMismatches) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  for (const std::string how : {"op", "count", "dtype", "skip"}) {
    base::FaultPlan plan(base::parse_fault("1:comm:2:mismatch:" + how));
    plan.set_world_rank(test_world().rank());
    const auto communicator = make_checked({.verify = true, .faults = &plan});
    int completed = 0;
    const std::string message = mismatch_of([&] {
      for (int step = 0; step < 5; ++step) {
        sum_of(DType::fp32, 64, step)(*communicator);
        ++completed;
      }
    });
    EXPECT_ON_ALL_RANKS(!message.empty()) << how;
    const int skipped = how == "skip" && test_world().rank() == 1 ? 1 : 0;
    EXPECT_ON_ALL_RANKS(completed == 2 + skipped) << how << ": " << completed;
  }
}

TEST(Checking, FaultsCountByTheStepOnceItIsSet) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  base::FaultPlan plan(base::parse_fault("1:comm:1:mismatch:op"));
  plan.set_world_rank(test_world().rank());
  const auto communicator = make_checked({.verify = true, .faults = &plan});
  communicator->set_step(0);
  sum_of(DType::fp32, 64, 0)(*communicator);
  sum_of(DType::fp32, 64, 1)(*communicator);
  communicator->set_step(1);
  EXPECT_ON_ALL_RANKS(!mismatch_of([&] { sum_of(DType::fp32, 64, 2)(*communicator); }).empty());
}

}  // namespace
}  // namespace shardmark::testing
