#include "world/deadline_guard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace shardmark::world {

DeadlineGuard::DeadlineGuard(std::string what, double seconds)
    : thread_([this, what = std::move(what), seconds] {
        std::unique_lock lock(mutex_);
        const auto limit = std::chrono::duration<double>(seconds);
        if (!changed_.wait_for(lock, limit, [this] { return done_; })) {
          base::log_error(
              fmt::format("deadline passed: {} did not finish within {} s; a rank is missing or stuck", what, seconds));
          _exit(static_cast<int>(base::ExitCode::deadline));
        }
      }) {}

DeadlineGuard::~DeadlineGuard() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace shardmark::world
