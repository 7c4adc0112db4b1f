#pragma once
// Ranks that are threads of one process: collectives over raw host memory without MPI. For tests and thread sanitizers: what
// drives a Communicator runs over it as it runs over MPI, and every access of one rank to another's buffer is one between
// threads. No thread of its own: as in MpiCommunicator, a rank's part of an operation is done inside its own start, test,
// progress and wait.

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::comm {

class ThreadGroup;

struct ThreadOptions {
  double deadline_s = 60;  // of every wait
};

class ThreadCommunicator final : public Communicator {
 public:
  /// Called by make_thread_communicators and split.
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank);
  /// Operations that are not complete fail on all other ranks (RemoteError), and so does whatever they start later. Waits only
  /// for copies under way: lent buffers must live until then.
  ~ThreadCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override;
  [[nodiscard]] const std::string& name() const override;
  [[nodiscard]] Ticket start(const Collective& collective) override;
  /// Throws MismatchError on all ranks that see the operation if their descriptions differ.
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override;
  /// All started operations must be complete. Waits for the others, with the deadline.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  Ticket issued_ = 0;
};

/// One communicator a rank; each is used by one thread at a time.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, const std::string& name = "world",
                                                                                   const ThreadOptions& options = {});

}  // namespace shardmark::comm
