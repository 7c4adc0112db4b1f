#pragma once
// What the ranks of a ThreadCommunicator share: the queue of operations, who has come how far, and the first failure. One lock
// guards all of it; buffers are read and written outside of the lock, between points that the lock orders.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/thread_communicator.hpp"

namespace shardmark::comm {

class ThreadGroup {
 public:
  ThreadGroup(int size, std::string name, const ThreadOptions& options);

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  void post(int rank, Ticket ticket, const Collective& collective);
  /// Does what `rank` can do of its part without waiting; true if `ticket` is complete on all ranks.
  [[nodiscard]] bool advance(int rank, Ticket ticket);
  void wait(int rank, Ticket ticket);
  /// The group of `color`; `place` becomes the rank's place in it.
  [[nodiscard]] std::shared_ptr<ThreadGroup> split(int rank, int color, const std::string& name, int& place);
  /// The rank will call nothing any more.
  void leave(int rank) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Of one operation. Every rank does its part of phase 0, then, once all have, of phase 1.
  struct Slot {
    explicit Slot(int size) : asked(static_cast<std::size_t>(size)), phases(static_cast<std::size_t>(size), -1) {}
    std::vector<Collective> asked;  // by rank
    std::vector<int> phases;        // by rank: -1 not here yet, else how many phases are done
    int num_arrived = 0;
    int num_done = 0;  // ranks that did the phase
    int phase = 0;     // under way
    bool complete = false;
  };
  struct Split {
    std::vector<int> colors;  // by rank, -1 = not here yet
    std::map<int, std::shared_ptr<ThreadGroup>> groups;
    int num_arrived = 0;
    int num_taken = 0;
  };

  [[nodiscard]] Slot& slot_at(Ticket ticket) { return slots_[static_cast<std::size_t>(ticket - first_ticket_)]; }
  [[nodiscard]] bool complete(Ticket ticket) { return ticket < first_ticket_ || slot_at(ticket).complete; }
  /// One phase of one operation for `rank`, without the lock while memory is touched; false if there is nothing to do.
  [[nodiscard]] bool step(Lock& lock, int rank);
  void finish_phase(Slot& slot);
  void check_equal(const Slot& slot, Ticket ticket);
  /// The first failure is everyone's from now on: each rank throws an exception of its own by calling `raise`.
  void fail(std::function<void()> raise);
  [[noreturn]] void fail_by_deadline(const std::string& message);
  void fail_by_leaving(int rank, Ticket ticket);
  void throw_if_failed() const;
  [[nodiscard]] std::string silent_ranks(Ticket ticket);

  const int size_;
  const std::string name_;
  const ThreadOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;         // started by some rank and not complete, oldest first
  Ticket first_ticket_ = 1;        // of the front
  std::vector<Ticket> next_;       // by rank: the oldest operation of which its part is not done
  std::vector<bool> left_;         // by rank
  std::int64_t num_touching_ = 0;  // ranks at work outside of the lock
  std::function<void()> failure_;
  Split split_;
};

}  // namespace shardmark::comm
