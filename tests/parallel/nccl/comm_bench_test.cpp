// What `shardmark comm` measures and checks where NCCL carries the messages, in memory that the host reaches by copies alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/bench/loop.hpp"
#include "app/bench/measure.hpp"
#include "app/bench/pairs.hpp"
#include "app/bench/paths.hpp"
#include "base/clock.hpp"
#include "comm/factory.hpp"
#include "tests/parallel/nccl/counting_device.hpp"
#include "tests/parallel/nccl/fixture.hpp"
#include "tests/support/nccl_double_log.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/threaded_device.hpp"

namespace shardmark::testing {
namespace {

using app::bench::Case;
using base::DType;
using comm::Operation;
using comm::Reduction;

class CommOverNccl : public ::testing::Test {
 protected:
  CommOverNccl() {
    options_.operations = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather, Operation::broadcast,
                           Operation::all_to_all, Operation::send_receive,   Operation::barrier};
    options_.dtypes = {DType::int64};
    options_.reductions = {Reduction::sum};
    // More than a chunk of the double in each part.
    options_.min_bytes = options_.max_bytes = std::int64_t{300} << 10;
    options_.iterations = 3;
    options_.warmup = 2;
    comm::FactoryOptions with;
    with.backend = "nccl";
    with.check = false;
    with.device = &device_;
    with.device_uuid = "GPU-" + std::to_string(world_.rank());
    with.init_deadline_s = 30;
    stack_.emplace(comm::make_communicator(world_, with));
  }

  /// On rank 0 the rows of all cases. `before`: called with a case before it is measured.
  template <typename Before>
  std::vector<record::CommRow> measure(app::bench::Bench& bench, const std::vector<Case>& cases, const Before& before) {
    const app::bench::Group group{&stack_->undecorated(), "world", 0};
    app::bench::Memory memory(std::ranges::max(cases, {}, &Case::message_bytes).message_bytes(), device_);
    std::vector<record::CommRow> rows;
    for (const auto& one : cases) {
      before(one);
      rows.push_back(bench.measure(group, one, memory));
    }
    return world_.rank() == 0 ? rows : std::vector<record::CommRow>();
  }
  std::vector<record::CommRow> measure(app::bench::Bench& bench, const std::vector<Case>& cases) {
    return measure(bench, cases, [](const Case&) {});
  }
  void measure_one() {
    app::bench::Bench bench(world_, *stack_, options_, faults_);
    static_cast<void>(measure(bench, {cases().front()}));
  }
  [[nodiscard]] std::vector<Case> cases() const { return app::bench::make_cases(options_, world_.size()); }

  world::World& world_ = test_world();
  CountingDevice device_{0};
  app::bench::CommOptions options_;
  base::FaultPlan faults_;
  std::optional<comm::CommunicatorStack> stack_;
};

TEST_F(CommOverNccl, EveryOperationTypeAndReductionIsRightAndTimed) {
  options_.dtypes = {DType::fp32, DType::bf16, DType::fp64, DType::int64, DType::uint8};
  options_.reductions = {Reduction::sum, Reduction::max, Reduction::min};
  for (const auto order : {comm::SumOrder::fast, comm::SumOrder::ordered}) {
    options_.order = order;
    app::bench::Bench bench(world_, *stack_, options_, faults_);
    const auto all = cases();
    const auto before = nccl_calls();
    const auto rows = measure(bench, all);
    EXPECT_ON_ALL_RANKS(nccl_calls().collectives > before.collectives);
    EXPECT_EQ(bench.num_wrong(), 0);
    EXPECT_EQ(rows.size(), world_.rank() == 0 ? all.size() : 0);
    for (const auto& row : rows) {
      SCOPED_TRACE(row.operation.str() + " " + row.dtype.str() + " " + row.reduction.str());
      EXPECT_EQ(row.wrong, row.operation.str() == "barrier" ? -1 : 0);
      EXPECT_EQ(row.backend.str(), "nccl");
      EXPECT_EQ(row.ranks, world_.size());
      EXPECT_EQ(row.iterations, options_.iterations);
      EXPECT_GT(row.time_min_s, 0);
      EXPECT_LE(row.time_min_s, row.time_p50_s);
      EXPECT_LE(row.time_p50_s, row.time_p99_s);
    }
  }
}

/// Whole numbers of int64: a bit that is flipped in one rank's term is wrong in the sum, too.
TEST_F(CommOverNccl, WhatTheLibraryGetsWrongIsFoundBeforeAndAfterTheTimedCalls) {
  std::erase(options_.operations, Operation::barrier);  // its ranks meet in the host
  const std::int64_t timed = options_.warmup + options_.iterations;
  for (const auto& [collective, is_checked] : {std::pair{std::int64_t{1}, true}, {2 + timed, true}, {2, false}}) {
    app::bench::Bench bench(world_, *stack_, options_, faults_);
    const auto rows = measure(bench, cases(), [&, at = collective](const Case&) {
      if (world_.rank() == world_.size() - 1) {
        plant_nccl_fault(NcclFault::flips_bit, at);
      }
    });
    plant_nccl_fault(NcclFault::none);
    for (const auto& row : rows) {
      EXPECT_EQ(row.wrong, is_checked ? 1 : 0) << row.operation.str() << ", collective " << collective;
    }
    EXPECT_EQ(bench.num_wrong(), is_checked ? std::ssize(rows) : 0);
  }
}

#ifdef SM_FAULTS
TEST_F(CommOverNccl, APlantedBitflipIsOneWrongElementOfItsRow) {
  const auto all = cases();
  for (std::size_t planted = 0; planted < all.size(); ++planted) {
    base::FaultPlan faults(base::Fault{.world_rank = world_.size() - 1,
                                       .phase = base::FaultPhase::comm,
                                       .step = static_cast<std::int64_t>(planted),
                                       .kind = base::FaultKind::bitflip,
                                       .value = "5"});
    faults.set_world_rank(world_.rank());
    app::bench::Bench bench(world_, *stack_, options_, faults);
    const auto rows = measure(bench, all);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t expected = all[i].operation == Operation::barrier ? -1 : i == planted ? 1 : 0;
      EXPECT_EQ(rows[i].wrong, expected) << rows[i].operation.str();
    }
  }
}
#endif

TEST_F(CommOverNccl, PairsAreMeasuredAndChecked) {
  if (world_.size() == 1) {
    GTEST_SKIP() << "one rank has no pair";
  }
  options_.pairs = true;
  const auto search = [&] {
    std::vector<record::CommRow> sunk;
    const auto found =
        app::bench::search_pairs(world_, *stack_, options_, faults_, [&](const auto& row) { sunk.push_back(row); });
    EXPECT_EQ(found.rows.size(), sunk.size());
    return found;
  };
  const auto right = search();
  const auto num_pairs = std::ranges::count(right.rows, "send_receive", [](const auto& row) { return row.operation.str(); });
  EXPECT_EQ(num_pairs, world_.rank() == 0 ? world_.size() * (world_.size() - 1) / 2 : 0);
  EXPECT_EQ(right.num_wrong, 0);
  if (world_.rank() == world_.size() - 1) {
    plant_nccl_fault(NcclFault::flips_bit);  // in the first check of the first half that this rank is in
  }
  const auto wrong = search();
  plant_nccl_fault(NcclFault::none);
  EXPECT_EQ(wrong.num_wrong, world_.rank() == 0 ? 1 : 0);
}

/// Ranks as on two nodes, even and odd, that have RDMA.
class CommPaths : public CommOverNccl {
 protected:
  CommPaths() {
    for (int rank = 0; rank < world_.size(); ++rank) {
      paths_.nodes.push_back(rank % 2);
    }
    const std::filesystem::path port = folder_.path() / "mlx5_0" / "ports" / "1";
    std::filesystem::create_directories(port);
    write_file((port / "state").string(), "4: ACTIVE\n");
    paths_.infiniband = folder_.path().string();
  }

  /// What `before` becomes; on rank 0.
  app::bench::Outcome judged(app::bench::Outcome before) {
    app::bench::judge_paths(world_, *stack_, paths_, before);
    return before;
  }

  TemporaryFolder folder_;
  app::bench::PathsToJudge paths_;
};

TEST_F(CommPaths, SocketsBetweenNodesWithRdmaAreABadPair) {
  set_nccl_path("NET/Socket/0");
  paths_.measured_world = false;  // and so one sum over the world is asked for
  const bool named = world_.rank() == 0 && world_.size() > 1;
  const auto slow = judged({4, "all results are right", base::ExitCode::good});
  EXPECT_EQ(slow.code, named ? base::ExitCode::environment : base::ExitCode::good);
  EXPECT_EQ(slow.verdict.starts_with("all results are right; messages between nodes go over sockets"), named) << slow.verdict;
  EXPECT_EQ(slow.verdict.find("accept it by --allow-slow-path") != std::string::npos, named) << slow.verdict;
  EXPECT_EQ(slow.num_rows, 4);
  const auto wrong = judged({4, "1 received element is wrong", base::ExitCode::wrong_result});
  EXPECT_EQ(wrong.code, base::ExitCode::wrong_result) << "the worse of the two";
  EXPECT_EQ(wrong.verdict.find("sockets") != std::string::npos, named);
  paths_.allow_slow_path = true;
  const auto allowed = judged({4, "all results are right", base::ExitCode::good});
  EXPECT_EQ(allowed.code, base::ExitCode::good);
  EXPECT_EQ(allowed.verdict, "all results are right");
}

TEST_F(CommPaths, FastOnesChangeNothing) {
  set_nccl_path("NET/IB/0/GDRDMA");
  measure_one();
  const auto before = nccl_calls();
  const auto fast = judged({4, "all results are right", base::ExitCode::good});
  EXPECT_EQ(fast.code, base::ExitCode::good);
  EXPECT_EQ(fast.verdict, "all results are right");
  EXPECT_EQ(nccl_calls().collectives, before.collectives) << "what was measured has shown the paths";
}

/// Neither what the device did before nor what the host does elsewhere is in the times: a sleep lasts at least as long as
/// asked.
TEST(CommTimesOnDevice, BeginWhenTheComputationBeforeHasEnded) {
  constexpr std::chrono::milliseconds kBefore(50);
  ThreadedDevice device;
  const auto nccl = make_nccl(device);
  std::vector<double> times_s(20, -1);
  float value = 1;
  const double start_s = base::now_s();
  device.compute([&] { std::this_thread::sleep_for(kBefore); });
  comm::Collective collective;
  collective.operation = Operation::all_reduce;
  collective.receive = {&value, 1};
  app::bench::time_calls_on_device(device, *nccl, collective, times_s);
  const double whole_s = base::now_s() - start_s;
  EXPECT_ON_ALL_RANKS(std::ranges::all_of(times_s, [](double time_s) { return time_s >= 0; }));
  const double sum_s = std::accumulate(times_s.begin(), times_s.end(), 0.0);
  // Twenty roundings of a double are far below the clock's nanosecond.
  EXPECT_ON_ALL_RANKS(sum_s <= whole_s - std::chrono::duration<double>(kBefore).count() + 1e-9) << sum_s << " of " << whole_s;
  nccl->barrier().wait();
}

}  // namespace
}  // namespace shardmark::testing
