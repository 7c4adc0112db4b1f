#pragma once
// A few threads that do pieces of work in the order in which they were given.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace shardmark::base {

class WorkerPool {
 public:
  /// Without threads `run` does the work itself, at once.
  explicit WorkerPool(std::size_t num_threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  /// Waits for work under way; what has not begun is dropped.
  ~WorkerPool();

  /// What `work` throws comes out of the future. What it refers to must outlive the pool or the future's `get`.
  template <typename Work>
  [[nodiscard]] auto run(Work work) -> std::future<decltype(work())> {
    // A function must be copyable, a packaged task is not.
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto result = task->get_future();
    add([task] { (*task)(); });
    return result;
  }

 private:
  void add(std::function<void()> piece);
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> pieces_;
  std::vector<std::jthread> threads_;  // last: they use the others
};

}  // namespace shardmark::base
