#pragma once
// A limit for the few MPI calls that have no non-blocking form (MPI_Init_thread, MPI_Comm_dup, MPI_Finalize): a thread that
// ends the process when they do not return.

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace shardmark::world {

class DeadlineGuard {
 public:
  /// Until the guard is destroyed `what` must finish within `seconds`; else the process prints so and exits with code 7.
  DeadlineGuard(std::string what, double seconds);
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;
  ~DeadlineGuard();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace shardmark::world
