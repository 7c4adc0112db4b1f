// The MPI session: identity, exchanges of control data, agreement, steps that fail on one rank.

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <numeric>
#include <string>

#include "base/clock.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

/// A text whose length depends on the rank; rank 1's is empty.
std::string text_of_rank(int rank) {
  return rank == 1 ? "" : std::string(static_cast<std::size_t>(rank * 1000 + 5), 'a');
}

TEST(World, RanksOfOneNode) {
  auto& world = test_world();
  EXPECT_ON_ALL_RANKS(world.rank() >= 0 && world.rank() < world.size());
  EXPECT_ON_ALL_RANKS(world.node() >= 0 && world.node() < world.num_nodes());
  EXPECT_ON_ALL_RANKS(world.node_rank() >= 0 && world.node_rank() < world.node_size());
  EXPECT_ON_ALL_RANKS(world.num_nodes() > 1 || (world.node_size() == world.size() && world.node_rank() == world.rank()));
  EXPECT_ON_ALL_RANKS(!world.host().empty() && world.host_of(world.rank()) == world.host());
  EXPECT_ON_ALL_RANKS(!world.failed());
  EXPECT_TRUE(world::mpi_version_text().starts_with("MPI 3") || world::mpi_version_text().starts_with("MPI 4"));
}

TEST(World, GatherKeepsOrderAndLengths) {
  auto& world = test_world();
  const auto all = world.gather(bytes_of(text_of_rank(world.rank())));
  bool right = all.size() == (world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0);
  for (std::size_t r = 0; r < all.size(); ++r) {
    right = right && all[r] == bytes_of(text_of_rank(static_cast<int>(r)));
  }
  EXPECT_ON_ALL_RANKS(right);
}

TEST(World, AllGatherKeepsOrderAndLengths) {
  auto& world = test_world();
  const auto all = world.all_gather(bytes_of(text_of_rank(world.rank())));
  bool right = all.size() == static_cast<std::size_t>(world.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    right = right && all[r] == bytes_of(text_of_rank(static_cast<int>(r)));
  }
  EXPECT_ON_ALL_RANKS(right);
}

TEST(World, BroadcastIsThatOfRank0) {
  auto& world = test_world();
  for (const std::size_t length : {0UL, 1UL, 100'000UL}) {
    const auto sent = bytes_of(std::string(length, world.rank() == 0 ? 'z' : 'y'));
    EXPECT_ON_ALL_RANKS(world.broadcast(sent) == bytes_of(std::string(length, 'z')));
  }
}

TEST(World, AgreeNamesBothSides) {
  auto& world = test_world();
  world.agree("version", "1.0");
  if (world.size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  std::string message;
  try {
    world.agree("configuration", world.rank() == 1 ? "lr = 2" : "lr = 1");
  } catch (const base::MismatchError& error) {
    message = error.what();
  }
  EXPECT_ON_ALL_RANKS(message.find("ranks differ in configuration: rank") == 0) << message;
  EXPECT_ON_ALL_RANKS(message.find("0") != std::string::npos && message.find(": lr = 1; rank 1: lr = 2") != std::string::npos)
      << message;
}

TEST(World, CollectivelyAllThrowOrNone) {
  auto& world = test_world();
  int calls = 0;
  world.collectively("opening data", [&] { ++calls; });
  EXPECT_ON_ALL_RANKS(calls == 1);
  const int failing = world.size() - 1;
  std::string message;
  base::ExitCode code = base::ExitCode::good;
  bool own = false;
  try {
    world.collectively("opening data", [&] {
      if (world.rank() == failing) {
        throw base::DataError("row 7 of features is not finite");
      }
    });
  } catch (const base::DataError& error) {
    own = true;
    message = error.what();
    code = error.code();
  } catch (const base::RemoteError& error) {
    message = error.what();
    code = error.code();
  }
  EXPECT_ON_ALL_RANKS(own == (world.rank() == failing));
  EXPECT_ON_ALL_RANKS(code == base::ExitCode::usage);
  EXPECT_ON_ALL_RANKS(message.find("row 7 of features") != std::string::npos);
  EXPECT_ON_ALL_RANKS(own || message.find("opening data failed on rank " + std::to_string(failing)) == 0);
}

TEST(World, PollReturnsBeforeTheDeadline) {
  auto& world = test_world();
  const double started_s = base::now_s();
  for (std::int64_t turn = 0; turn < 5000; ++turn) {
    world.poll(turn, started_s, {.operation = "test", .purpose = "control"});
  }
  EXPECT_ON_ALL_RANKS(!world.failed());
}

}  // namespace
}  // namespace shardmark::testing
