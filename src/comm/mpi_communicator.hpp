#pragma once
// Collectives in host memory over MPI messages. No thread: operations advance inside start, test, progress and wait of the
// calling thread, so that they move under computation without taking a core from it.

#include <vector>

#include "comm/communicator.hpp"
#include "comm/mpi_operation.hpp"
#include "comm/ring.hpp"

namespace shardmark::comm {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(CommHandle handle, std::string name, const MpiOptions& options);
  ~MpiCommunicator() override;

  [[nodiscard]] int rank() const override { return group_.rank(); }
  [[nodiscard]] int size() const override { return group_.size(); }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override;
  /// All started operations must be complete.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  struct Entry {
    Collective collective;
    int lane = -1;  // -1: not begun
    bool complete = false;
  };
  void begin_queued();

  MpiOptions options_;
  MpiGroup group_;
  std::string name_;
  std::vector<MpiOperation> lanes_;
  std::vector<int> free_lanes_;
  Ring<Entry> queue_;  // started and not complete, oldest first; its front has ticket completed_ + 1
  std::size_t num_begun_ = 0;
  Ticket issued_ = 0;
  Ticket completed_ = 0;
  bool broken_ = false;
};

/// What a wait for `collective` says of itself in a deadline's report.
[[nodiscard]] world::WaitInfo wait_info(const Collective& collective, std::int64_t sequence);

}  // namespace shardmark::comm
