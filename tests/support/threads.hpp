#pragma once
// Ranks as threads: for what needs several ranks and no launcher.

#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/thread_communicator.hpp"

namespace shardmark::testing {

/// Runs `body(rank, communicator)` in one thread a rank and returns when all have ended. What a rank threw is at its place.
/// No checking decorator is needed: the communicators themselves compare every collective between ranks, before memory is
/// touched, by the same description.
template <typename Body>
std::vector<std::exception_ptr> outcomes_on_threads(int size, const Body& body, const comm::ThreadOptions& options = {}) {
  auto communicators = comm::make_thread_communicators(size, "world", options);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      threads.emplace_back([rank, &body, &own = thrown[place], communicator = std::move(communicators[place])]() mutable {
        try {
          body(rank, *communicator);
        } catch (...) {
          own = std::current_exception();
        }
        communicator.reset();
      });
    }
  }
  return thrown;
}

/// As above; throws what the first rank threw.
template <typename Body>
void on_threads(int size, const Body& body, const comm::ThreadOptions& options = {}) {
  for (const auto& thrown : outcomes_on_threads(size, body, options)) {
    if (thrown != nullptr) {
      std::rethrow_exception(thrown);
    }
  }
}

}  // namespace shardmark::testing
