// GatherSchedule as an engine uses it, over ranks that are threads: units gathered ahead on one queue, gradients reduced in
// order on another, within the budget. No LibTorch, so that the thread sanitizer can watch.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "comm/counting_communicator.hpp"
#include "parallel/gather_schedule.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::parallel {
namespace {

using comm::Communicator;
using comm::Pending;
using comm::Purpose;

struct Case {
  int ranks = 1;
  std::int64_t prefetch = 1;
  bool tight = false;  // a budget for the root and the largest unit, no more
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (std::int64_t prefetch = 0; prefetch <= 3; ++prefetch) {
      all.push_back({ranks, prefetch, false});
      all.push_back({ranks, prefetch, true});
    }
  }
  return all;
}

/// Elements of a unit's part on one rank; unit 0 is the root.
const std::vector<std::int64_t> kPart{5, 130, 7, 64, 1};
constexpr std::int64_t kPasses = 3;

float value_of(std::int64_t unit, int rank, std::int64_t element) {
  return static_cast<float>(unit * 10000 + rank * 1000 + element);
}

/// One rank's engine in small: forward through root and blocks, backward in reverse.
class Engine {
 public:
  Engine(const Case& which, int rank, Communicator& gather, Communicator& scatter)
      : ranks_(which.ranks), rank_(rank), gather_(gather), scatter_(scatter), schedule_(bytes(which), options(which)) {
    for (std::size_t unit = 0; unit < kPart.size(); ++unit) {
      auto& own = owned_.emplace_back();
      for (std::int64_t i = 0; i < kPart[unit]; ++i) {
        own.push_back(value_of(static_cast<std::int64_t>(unit), rank, i));
      }
    }
    whole_.resize(kPart.size());
    gathers_.resize(kPart.size());
    sums_.resize(kPart.size());
  }

  void pass() {
    const auto last = static_cast<std::int64_t>(kPart.size()) - 1;
    use(0);
    for (std::int64_t unit = 1; unit <= last; ++unit) {
      use(unit);
      release(unit);
    }
    release(0);
    use(0);
    for (std::int64_t unit = last; unit >= 1; --unit) {
      use(unit);
      reduce(unit);
      release(unit);
    }
    reduce(0);
    std::vector<std::int64_t> leftover;
    schedule_.end_pass(leftover);
    EXPECT_EQ(leftover, std::vector<std::int64_t>{0}) << "only the root stays to the end";
    whole_[0].clear();
    for (auto& reduction : reductions_) {
      reduction.wait();
    }
    check_sums();
  }

  [[nodiscard]] const std::vector<std::int64_t>& started() const { return started_; }
  [[nodiscard]] std::int64_t most_held_bytes() const { return schedule_.most_held_bytes(); }
  static std::int64_t budget(const Case& which) {
    return which.tight ? 4 * which.ranks * (kPart[0] + *std::ranges::max_element(kPart)) : 0;
  }

 private:
  static std::vector<std::int64_t> bytes(const Case& which) {
    std::vector<std::int64_t> bytes;
    for (const auto part : kPart) {
      bytes.push_back(4 * part * which.ranks);
    }
    return bytes;
  }
  static GatherSchedule::Options options(const Case& which) { return {which.prefetch, 0, budget(which)}; }

  void start(const std::vector<std::int64_t>& units) {
    for (const auto unit : units) {
      const auto u = static_cast<std::size_t>(unit);
      EXPECT_TRUE(whole_[u].empty()) << "unit " << unit << " is gathered while it is whole";
      whole_[u].resize(static_cast<std::size_t>(kPart[u] * ranks_));
      gathers_[u] =
          gather_.all_gather({owned_[u].data(), kPart[u]}, {whole_[u].data(), kPart[u] * ranks_}, Purpose::parameter, unit);
      started_.push_back(unit);
    }
  }

  void use(std::int64_t unit) {
    std::vector<std::int64_t> units;
    std::vector<std::int64_t> dropped;
    schedule_.visit(unit, units, dropped);
    EXPECT_TRUE(dropped.empty()) << "every pass is the same";
    start(units);
    const auto u = static_cast<std::size_t>(unit);
    gathers_[u].wait();
    ASSERT_EQ(whole_[u].size(), static_cast<std::size_t>(kPart[u] * ranks_));
    for (int rank = 0; rank < ranks_; ++rank) {
      for (std::int64_t i = 0; i < kPart[u]; ++i) {
        EXPECT_EQ(whole_[u][static_cast<std::size_t>(rank * kPart[u] + i)], value_of(unit, rank, i));
      }
    }
    scatter_.progress();
  }

  void release(std::int64_t unit) {
    auto& whole = whole_[static_cast<std::size_t>(unit)];
    whole.assign(whole.size(), -1.0F);  // whoever still read it would show
    whole.clear();
    std::vector<std::int64_t> units;
    schedule_.release(unit, units);
    start(units);
  }

  /// The gradient of an element is its value, on every rank times one more than its rank.
  void reduce(std::int64_t unit) {
    const auto u = static_cast<std::size_t>(unit);
    auto& gradient = gradients_.emplace_back(whole_[u]);
    for (auto& value : gradient) {
      value *= static_cast<float>(rank_ + 1);
    }
    sums_[u].assign(static_cast<std::size_t>(kPart[u]), 0.0F);
    reductions_.push_back(scatter_.reduce_scatter({gradient.data(), static_cast<std::int64_t>(gradient.size())},
                                                  {sums_[u].data(), kPart[u]}, Purpose::gradient, unit,
                                                  comm::SumOrder::ordered));
  }

  void check_sums() {
    const auto factor = static_cast<float>(ranks_ * (ranks_ + 1) / 2);  // small whole numbers: exact in fp32
    for (std::size_t unit = 0; unit < kPart.size(); ++unit) {
      for (std::int64_t i = 0; i < kPart[unit]; ++i) {
        EXPECT_EQ(sums_[unit][static_cast<std::size_t>(i)], factor * value_of(static_cast<std::int64_t>(unit), rank_, i));
      }
    }
    gradients_.clear();
    reductions_.clear();
  }

  int ranks_;
  int rank_;
  Communicator& gather_;
  Communicator& scatter_;
  GatherSchedule schedule_;
  std::vector<std::vector<float>> owned_;
  std::vector<std::vector<float>> whole_;  // empty: not gathered
  std::vector<Pending> gathers_;
  std::deque<std::vector<float>> gradients_;
  std::vector<std::vector<float>> sums_;
  std::vector<Pending> reductions_;
  std::vector<std::int64_t> started_;
};

class GatherOverThreads : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, GatherOverThreads, ::testing::ValuesIn(cases()), [](const auto& made) {
  const Case& which = made.param;
  return "ranks" + std::to_string(which.ranks) + "_prefetch" + std::to_string(which.prefetch) + (which.tight ? "_tight" : "");
});

TEST_P(GatherOverThreads, EveryUnitIsWholeWhenUsedAndEverySumIsRight) {
  const Case which = GetParam();
  std::vector<std::vector<std::int64_t>> started(static_cast<std::size_t>(which.ranks));
  testing::on_threads(which.ranks, [&](int rank, Communicator& all) {
    comm::CountingCommunicator gather(all.split(0, "gather"));
    comm::CountingCommunicator scatter(all.split(0, "scatter"));
    Engine engine(which, rank, gather, scatter);
    for (std::int64_t pass = 0; pass < kPasses; ++pass) {
      engine.pass();
    }
    started[static_cast<std::size_t>(rank)] = engine.started();
    if (which.tight) {
      EXPECT_LE(engine.most_held_bytes(), Engine::budget(which));
    }
    std::int64_t gathers = 0;
    for (const auto& row : gather.counts().rows()) {
      gathers += row.count;
    }
    // Each unit twice a pass: forward, and again for backward.
    EXPECT_EQ(gathers, kPasses * 2 * static_cast<std::int64_t>(kPart.size()));
  });
  for (const auto& each : started) {
    EXPECT_EQ(each, started.front()) << "ranks gather in different orders";
  }
}

}  // namespace
}  // namespace shardmark::parallel
