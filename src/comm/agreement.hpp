#pragma once
// One tiny exchange per collective by which ranks agree that they mean the same one, on an MPI communicator of its own.

#include <array>
#include <cstdint>
#include <vector>

#include "comm/description.hpp"
#include "comm/mpi_group.hpp"
#include "comm/ring.hpp"

namespace shardmark::comm {

/// Agreements complete in the order of their start; several may be in flight. Never blocks but where said.
class Agreement {
 public:
  explicit Agreement(CommHandle handle);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  ~Agreement();

  [[nodiscard]] const MpiGroup& group() const { return group_; }

  /// Collective: hands in this rank's description of its next collective.
  void start(const Description& description);
  /// Moves on. True if the oldest is complete and equal everywhere; it is then taken off. Throws MismatchError, on every
  /// rank, naming the sides; this waits, with a deadline, until every rank has noticed.
  [[nodiscard]] bool next_agreed();

 private:
  /// Element-wise minimum over ranks of {digest, ~digest}: all digests are equal if and only if the two sides then still
  /// complement each other.
  using Digests = std::array<std::uint64_t, 2>;
  static constexpr std::size_t kSlots = 16;

  /// One agreement in flight: dissemination rounds, in round k to the rank 2^k ahead.
  struct Slot {
    Digests mine{};
    Digests sent{};
    Digests received{};
    int round = 0;
    int tag = 0;
    std::vector<MPI_Request> requests;
  };

  [[nodiscard]] Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % kSlots]; }
  void begin_waiting();
  void post(Slot& slot);
  [[nodiscard]] bool advance(Slot& slot);
  [[noreturn]] void raise_mismatch(const Description& mine);

  MpiGroup group_;
  int num_rounds_ = 0;
  std::array<Slot, kSlots> slots_;
  Ring<Description> descriptions_;  // started and not taken off
  std::int64_t taken_ = 0;          // agreements taken off
  std::int64_t begun_ = 0;          // with messages out
};

}  // namespace shardmark::comm
