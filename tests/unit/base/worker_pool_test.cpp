#include "base/worker_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace shardmark::base {
namespace {

TEST(WorkerPool, DoesAllWorkInAnyNumberOfThreads) {
  for (const std::size_t threads : {0U, 1U, 3U}) {
    WorkerPool pool(threads);
    std::vector<std::future<int>> results;
    for (int i = 0; i < 50; ++i) {
      results.push_back(pool.run([i] { return i * i; }));
    }
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(results[static_cast<std::size_t>(i)].get(), i * i);
    }
  }
}

TEST(WorkerPool, PassesExceptionsOn) {
  for (const std::size_t threads : {0U, 1U}) {
    WorkerPool pool(threads);
    auto result = pool.run([]() -> int { throw std::runtime_error("no"); });
    EXPECT_THROW(result.get(), std::runtime_error);
  }
}

TEST(WorkerPool, EndsWithWorkLeft) {
  std::atomic<int> done = 0;
  std::promise<void> go;
  std::future<void> first;
  {
    WorkerPool pool(1);
    std::promise<void> started;
    first = pool.run([&] {
      started.set_value();
      go.get_future().wait();
    });
    started.get_future().wait();
    for (int i = 0; i < 10; ++i) {
      static_cast<void>(pool.run([&] { ++done; }));
    }
    go.set_value();
  }
  first.get();
  EXPECT_LE(done, 10);
}

}  // namespace
}  // namespace shardmark::base
