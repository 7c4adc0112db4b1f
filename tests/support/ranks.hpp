#pragma once
// For tests that run on several ranks under mpirun: the one World of the program, and verdicts that all ranks share.

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>

#include "world/world.hpp"

namespace shardmark::testing {

/// The World that tests/support/mpi_main.cpp made.
[[nodiscard]] world::World& test_world();

/// Collective. Fails on rank 0, naming the ranks where `mine` is false, and on those.
[[nodiscard]] inline ::testing::AssertionResult on_all_ranks(bool mine) {
  const std::byte verdict{static_cast<unsigned char>(mine ? 1 : 0)};
  std::string failing;
  const auto all = test_world().all_gather(std::span(&verdict, 1));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].front() == std::byte{0}) {
      failing += (failing.empty() ? "" : ", ") + std::to_string(r);
    }
  }
  if (failing.empty() || (mine && test_world().rank() != 0)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "does not hold on rank(s) " << failing;
}

}  // namespace shardmark::testing

/// Every rank must come here: a rank-local ASSERT before a collective would leave the others waiting.
#define EXPECT_ON_ALL_RANKS(condition) \
  EXPECT_TRUE(::shardmark::testing::on_all_ranks(static_cast<bool>(condition))) << "expected on all ranks: " #condition "\n"
