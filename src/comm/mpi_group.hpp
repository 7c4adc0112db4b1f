#pragma once
// One MPI communicator of ours and the messages on it: who is in the group, posting, testing, cancelling. Every count that
// reaches MPI passes here.

#include <cstdint>
#include <utility>
#include <vector>

#include "world/handles.hpp"

namespace shardmark::comm {

/// Move-only owner of an MPI_Comm. Not freed after a failure: MPI may still hold messages of it.
class CommHandle {
 public:
  CommHandle() = default;
  CommHandle(world::World& world, MPI_Comm communicator) : world_(&world), communicator_(communicator) {}
  CommHandle(CommHandle&& other) noexcept
      : world_(std::exchange(other.world_, nullptr)), communicator_(std::exchange(other.communicator_, MPI_COMM_NULL)) {}
  CommHandle& operator=(CommHandle&& other) noexcept {
    std::swap(world_, other.world_);
    std::swap(communicator_, other.communicator_);
    return *this;
  }
  ~CommHandle();

  /// Collective over the world: a duplicate of its parent of communicators.
  [[nodiscard]] static CommHandle duplicate(world::World& world);
  /// Collective over this communicator, after a barrier with a deadline: ranks of equal color, in this one's order.
  [[nodiscard]] CommHandle split(int color) const;

  [[nodiscard]] MPI_Comm get() const { return communicator_; }
  [[nodiscard]] world::World& world() const { return *world_; }

 private:
  world::World* world_ = nullptr;
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

/// The ranks of a communicator and point-to-point messages between them.
class MpiGroup {
 public:
  explicit MpiGroup(CommHandle handle);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const CommHandle& handle() const { return handle_; }
  [[nodiscard]] world::World& world() const { return handle_.world(); }

  /// Posts without blocking. Messages of one tag between two ranks arrive in the order they were posted.
  void send(const void* data, std::int64_t bytes, int peer, int tag, std::vector<MPI_Request>& requests) const;
  void receive(void* data, std::int64_t bytes, int peer, int tag, std::vector<MPI_Request>& requests) const;
  /// True once all are complete; then `requests` is empty.
  [[nodiscard]] bool test_all(std::vector<MPI_Request>& requests);
  void check(int code, const char* call) const { handle_.world().handles().check(code, call); }

 private:
  CommHandle handle_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Status> statuses_;  // of the messages just tested: they alone name an error
};

/// After a failure: receives that nobody answers are withdrawn, so that no late message writes into memory that unwinding
/// frees. Best effort and local.
void withdraw(std::vector<MPI_Request>& requests) noexcept;

/// Tags that every MPI allows (32,767), used in turn by the operations of a group. Two messages of one operation need two.
inline constexpr std::int64_t kNumTags = 16384;

}  // namespace shardmark::comm
