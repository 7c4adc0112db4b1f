#include "base/worker_pool.hpp"

namespace shardmark::base {

WorkerPool::WorkerPool(std::size_t num_threads) {
  for (std::size_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

WorkerPool::~WorkerPool() {
  for (auto& thread : threads_) {
    thread.request_stop();
  }
}

void WorkerPool::add(std::function<void()> piece) {
  if (threads_.empty()) {
    piece();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
  }
  changed_.notify_one();
}

void WorkerPool::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !pieces_.empty(); }) && !stop.stop_requested()) {
    const auto piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    piece();
    lock.lock();
  }
}

}  // namespace shardmark::base
