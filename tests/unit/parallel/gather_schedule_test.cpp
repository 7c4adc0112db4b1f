// Which units are gathered ahead of use: recorded orders, depth, budget, the root, deviations. No LibTorch: the thread
// sanitizer runs this program too.

#include "parallel/gather_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace shardmark::parallel {
namespace {

using Units = std::vector<std::int64_t>;

/// A schedule and what it said, event by event.
class Driver {
 public:
  Driver(Units bytes, GatherSchedule::Options options)
      : bytes_(bytes), options_(options), schedule_(std::move(bytes), options) {}

  Units visit(std::int64_t unit) {
    Units started;
    used_.insert(unit);
    ahead_.erase(unit);
    const bool held = schedule_.holds(unit);
    dropped_.clear();
    schedule_.visit(unit, started, dropped_);
    for (const auto dropped : dropped_) {
      EXPECT_EQ(ahead_.erase(dropped), 1U) << "dropped and not gathered ahead: unit " << dropped;
      EXPECT_FALSE(schedule_.holds(dropped));
    }
    EXPECT_EQ(schedule_.holds(unit), bytes(unit) > 0) << "visited and not held: unit " << unit;
    if (!held && bytes(unit) > 0) {
      EXPECT_FALSE(started.empty());
      EXPECT_EQ(started.front(), unit) << "what is used comes first";
      add(started, 1);
    } else {
      add(started, 0);
    }
    return started;
  }
  Units release(std::int64_t unit) {
    Units started;
    schedule_.release(unit, started);
    used_.erase(unit);
    ahead_.erase(unit);
    add(started, 0);
    return started;
  }
  Units end_pass() {
    Units leftover;
    schedule_.end_pass(leftover);
    EXPECT_EQ(schedule_.held_bytes(), 0);
    used_.clear();
    ahead_.clear();
    return leftover;
  }

  [[nodiscard]] const GatherSchedule& schedule() const { return schedule_; }
  /// By the latest visit.
  [[nodiscard]] const Units& dropped() const { return dropped_; }
  [[nodiscard]] std::int64_t num_started() const { return num_started_; }
  /// All that was started, in order.
  [[nodiscard]] const Units& started() const { return started_; }

 private:
  [[nodiscard]] std::int64_t bytes(std::int64_t unit) const { return bytes_[static_cast<std::size_t>(unit)]; }

  void add(const Units& started, std::size_t own) {
    for (std::size_t i = 0; i < started.size(); ++i) {
      EXPECT_GT(bytes(started[i]), 0) << "nothing to gather";
      if (i >= own) {
        EXPECT_FALSE(used_.contains(started[i])) << "gathered ahead while in use: unit " << started[i];
        EXPECT_TRUE(ahead_.insert(started[i]).second) << "gathered twice: unit " << started[i];
      }
    }
    num_started_ += static_cast<std::int64_t>(started.size());
    started_.insert(started_.end(), started.begin(), started.end());
    // The root may come beside them: see look_ahead.
    std::int64_t ahead = 0;
    std::int64_t ahead_bytes = 0;
    for (const auto unit : ahead_) {
      ahead += unit == 0 ? 0 : 1;
      ahead_bytes += unit == 0 ? 0 : bytes(unit);
    }
    EXPECT_LE(ahead, options_.prefetch);
    if (options_.prefetch_bytes > 0) {
      EXPECT_LE(ahead_bytes, options_.prefetch_bytes);
    }
    std::int64_t held = 0;
    for (std::size_t unit = 0; unit < bytes_.size(); ++unit) {
      held += schedule_.holds(static_cast<std::int64_t>(unit)) ? bytes_[unit] : 0;
    }
    EXPECT_EQ(schedule_.held_bytes(), held);
    EXPECT_GE(schedule_.most_held_bytes(), held);
    if (options_.budget_bytes > 0) {
      EXPECT_LE(schedule_.most_held_bytes(), options_.budget_bytes);
    }
  }

  Units bytes_;
  GatherSchedule::Options options_;
  GatherSchedule schedule_;
  std::set<std::int64_t> used_;
  std::set<std::int64_t> ahead_;
  std::int64_t num_started_ = 0;
  Units started_;
  Units dropped_;
};

/// Root, blocks forward, root again, blocks backward: as units are run that are freed after forward.
void run_pass(Driver& driver, const Units& blocks) {
  driver.visit(0);
  for (const auto unit : blocks) {
    driver.visit(unit);
    driver.release(unit);
  }
  driver.release(0);
  driver.visit(0);
  for (auto unit = blocks.rbegin(); unit != blocks.rend(); ++unit) {
    driver.visit(*unit);
    driver.release(*unit);
  }
}

TEST(GatherSchedule, TheFirstPassGathersAtUseAndRecords) {
  Driver driver({10, 10, 10, 0}, {.prefetch = 2});
  EXPECT_EQ(driver.visit(0), Units{0});
  EXPECT_EQ(driver.visit(2), Units{2});
  EXPECT_EQ(driver.visit(2), Units{}) << "it is held";
  EXPECT_EQ(driver.release(2), Units{});
  EXPECT_EQ(driver.visit(3), Units{}) << "a unit of no bytes is never gathered";
  EXPECT_EQ(driver.visit(1), Units{1});
  EXPECT_EQ(driver.release(1), Units{});
  EXPECT_EQ(driver.end_pass(), Units{0});
  EXPECT_EQ(driver.schedule().order(), (Units{0, 2, 2, 1}));
  EXPECT_EQ(driver.schedule().most_held_bytes(), 20);
}

TEST(GatherSchedule, ASecondPassGathersAheadAsDeepAsAsked) {
  const std::vector<std::vector<Units>> expected{
      // What each of visit 0, visit 1, release 1, visit 2, release 2, visit 3, release 3 starts.
      {{0}, {1}, {}, {2}, {}, {3}, {}},
      {{0, 1}, {2}, {}, {3}, {}, {}, {}},
      {{0, 1, 2}, {3}, {}, {}, {}, {}, {}},
      {{0, 1, 2, 3}, {}, {}, {}, {}, {}, {}},
  };
  for (std::int64_t depth = 0; depth <= 3; ++depth) {
    Driver driver({4, 4, 4, 4}, {.prefetch = depth});
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<Units> said{driver.visit(0)};
      for (std::int64_t unit = 1; unit <= 3; ++unit) {
        said.push_back(driver.visit(unit));
        said.push_back(driver.release(unit));
      }
      EXPECT_EQ(driver.end_pass(), Units{0});
      if (pass > 0) {
        EXPECT_EQ(said, expected[static_cast<std::size_t>(depth)]) << "prefetch " << depth << ", pass " << pass;
      }
    }
  }
}

TEST(GatherSchedule, WhatIsStillInUseIsNotGatheredForItsNextVisit) {
  Driver driver({0, 8, 8}, {.prefetch = 1});
  for (int pass = 0; pass < 2; ++pass) {
    driver.visit(1);
    driver.release(1);
    EXPECT_EQ(driver.visit(2), pass == 0 ? Units{2} : Units{}) << "its own next visit must wait until it is freed";
    EXPECT_EQ(driver.release(2), pass == 0 ? Units{} : Units{2}) << "then it is gathered for backward";
    EXPECT_EQ(driver.visit(2), pass == 0 ? Units{2} : Units{1});
    driver.release(2);
    driver.visit(1);
    driver.release(1);
    EXPECT_TRUE(driver.end_pass().empty());
  }
  EXPECT_EQ(driver.num_started(), 8);
}

TEST(GatherSchedule, TheRootStaysAndDoesNotStandInTheWay) {
  Driver driver({5, 5, 5}, {.prefetch = 1});
  run_pass(driver, {1, 2});
  EXPECT_EQ(driver.end_pass(), Units{0});
  EXPECT_EQ(driver.schedule().order(), (Units{0, 1, 2, 0, 2, 1}));
  driver.visit(0);
  driver.visit(1);
  driver.release(1);
  driver.visit(2);
  EXPECT_EQ(driver.release(2), Units{2}) << "for backward, although the root's next visit comes before and the root is in use";
  EXPECT_TRUE(driver.schedule().holds(0));
  EXPECT_EQ(driver.release(0), Units{0});
  EXPECT_EQ(driver.visit(0), Units{});
}

TEST(GatherSchedule, BytesAheadAreLimited) {
  Driver driver({0, 10, 10, 10, 30, 10}, {.prefetch = std::numeric_limits<std::int64_t>::max(), .prefetch_bytes = 25});
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<Units> said;
    for (std::int64_t unit = 1; unit <= 5; ++unit) {
      said.push_back(driver.visit(unit));
      driver.release(unit);
    }
    driver.end_pass();
    if (pass == 1) {
      // 30 never fits ahead: it is gathered at its use, and nothing passes it.
      EXPECT_EQ(said, (std::vector<Units>{{1, 2, 3}, {}, {}, {4, 5}, {}}));
    }
  }
}

TEST(GatherSchedule, DeviationIsRecordedAnewFromThere) {
  Driver driver({4, 4, 4, 4}, {.prefetch = 1});
  run_pass(driver, {1, 2, 3});
  driver.end_pass();
  EXPECT_EQ(driver.visit(0), (Units{0, 1}));
  driver.visit(1);
  driver.release(1);
  EXPECT_TRUE(driver.schedule().holds(2)) << "gathered ahead";
  EXPECT_EQ(driver.visit(3), Units{3}) << "unit 2 is passed over; nothing is foreseen";
  EXPECT_EQ(driver.dropped(), Units{2}) << "what was gathered in vain gives its memory back at once";
  driver.release(3);
  EXPECT_EQ(driver.end_pass(), Units{0});
  EXPECT_EQ(driver.schedule().order(), (Units{0, 1, 3}));
  EXPECT_EQ(driver.visit(0), (Units{0, 1}));
  EXPECT_EQ(driver.visit(1), Units{3}) << "the new order holds";
}

TEST(GatherSchedule, AShorterPassCutsTheOrderAndALongerOneAddsToIt) {
  Driver driver({0, 4, 4, 4}, {.prefetch = 1});
  for (const Units& order : {Units{1, 2, 3}, Units{1, 2}, Units{1, 2, 3}}) {
    for (const auto unit : order) {
      driver.visit(unit);
      driver.release(unit);
    }
    driver.end_pass();
    EXPECT_EQ(driver.schedule().order(), order);
  }
  EXPECT_TRUE(driver.end_pass().empty()) << "a pass without visits";
  EXPECT_TRUE(driver.schedule().order().empty());
  EXPECT_EQ(driver.visit(3), Units{3});
  EXPECT_EQ(driver.schedule().order(), Units{3});
}

TEST(GatherSchedule, ReleaseOfWhatIsNotHeldDoesNothing) {
  Driver driver({4, 4, 0}, {.prefetch = 1});
  EXPECT_EQ(driver.release(1), Units{});
  EXPECT_EQ(driver.release(2), Units{});
  EXPECT_EQ(driver.schedule().held_bytes(), 0);
}

/// A model and limits drawn from a seed.
struct Drawn {
  Units bytes;
  Units blocks;  // in order of use, some more than once
  GatherSchedule::Options options;

  explicit Drawn(std::uint64_t seed) {
    const base::RandomStream stream(seed, "schedule");
    std::uint64_t at = 0;
    const auto below = [&](std::uint32_t limit) { return static_cast<std::int64_t>(stream.bits(at++) % limit); };
    const std::int64_t num_units = 2 + below(7);
    for (std::int64_t unit = 0; unit < num_units; ++unit) {
      bytes.push_back(below(4) == 0 ? 0 : 1 + below(100));
    }
    const std::int64_t num_uses = below(12);
    for (std::int64_t i = 0; i < num_uses; ++i) {
      blocks.push_back(1 + below(static_cast<std::uint32_t>(num_units - 1)));
    }
    options.prefetch = below(4);
    options.prefetch_bytes = below(3) == 0 ? 1 + below(150) : 0;
    const std::int64_t least = bytes[0] + *std::max_element(bytes.begin() + 1, bytes.end());
    options.budget_bytes = below(2) == 0 && least > 0 ? least + below(3) * below(60) : 0;
  }
};

TEST(GatherSchedule, RandomModelsKeepEveryLimitAndGatherOnceAVisit) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Drawn drawn(seed);
    Driver driver(drawn.bytes, drawn.options);
    std::int64_t visits = 0;
    for (int pass = 0; pass < 3; ++pass) {
      run_pass(driver, drawn.blocks);
      EXPECT_EQ(driver.end_pass(), drawn.bytes[0] > 0 ? Units{0} : Units{});
      visits += drawn.bytes[0] > 0 ? 2 : 0;
      for (const auto unit : drawn.blocks) {
        visits += drawn.bytes[static_cast<std::size_t>(unit)] > 0 ? 2 : 0;
      }
      EXPECT_EQ(driver.num_started(), visits) << "nothing is gathered in vain, nothing twice";
    }
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(GatherSchedule, RandomDeviationsKeepEveryLimit) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Drawn drawn(seed);
    Driver driver(drawn.bytes, drawn.options);
    const base::RandomStream stream(seed, "deviation");
    for (std::uint64_t pass = 0; pass < 6; ++pass) {
      Units blocks = drawn.blocks;
      if (pass % 2 == 1 && !blocks.empty()) {
        blocks[stream.bits(pass) % blocks.size()] = 1;
      }
      run_pass(driver, blocks);
      driver.end_pass();
    }
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(GatherSchedule, EqualVisitsGiveEqualDecisions) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Drawn drawn(seed);
    std::vector<Units> said;
    for (int rank = 0; rank < 2; ++rank) {
      Driver driver(drawn.bytes, drawn.options);
      for (int pass = 0; pass < 3; ++pass) {
        run_pass(driver, drawn.blocks);
        driver.end_pass();
      }
      said.push_back(driver.started());
    }
    EXPECT_EQ(said[0], said[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shardmark::parallel
