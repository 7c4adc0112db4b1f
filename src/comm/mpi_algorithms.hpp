#pragma once
// How each collective becomes messages. An operation is cut into rounds; a round posts a first set of messages, then, once
// they are complete, computes and posts a second set. MpiOperation runs the rounds; here is what they contain.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mpi_group.hpp"

namespace shardmark::comm {

struct MpiOptions {
  /// One message of a sum between two ranks; larger ones leave the caches (measured: one of 512 KiB moves 16 MiB faster
  /// than one of 64 KiB or of 4 MiB). Groups of more than two ranks divide it, so that staging stays in cache.
  std::int64_t chunk_bytes = 512 * 1024;
  /// Sums of up to this many received bytes a rank go whole to everyone: one latency instead of two.
  std::int64_t small_bytes = 64 * 1024;
  /// Most elements in one message, 0 = only bytes limit; tests lower it to see counts split.
  std::int64_t max_chunk_elements = 0;
  /// Rounds of one operation in flight.
  int window = 4;
  /// Operations in flight.
  int lanes = 4;
  /// Groups of at least this many ranks leave `fast` sums of fp32 and fp64 to the MPI library.
  int library_from = 9;
};

/// How an operation is cut: how many rounds, and how many of them may be in flight.
struct Plan {
  std::int64_t rounds = 0;
  int window = 1;
};

/// One round in flight. Its vectors and staging keep their memory.
struct Round {
  std::int64_t index = 0;
  std::vector<MPI_Request> requests;
  std::vector<std::byte> staging;
};

class Algorithm {
 public:
  Algorithm(const MpiGroup& group, const MpiOptions& options) : group_(group), options_(options) {}
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;
  virtual ~Algorithm() = default;

  /// Takes up an operation. `tag` and `tag + 1` are its own.
  [[nodiscard]] Plan begin(const Collective& collective, int tag);
  virtual void post_first(Round& round) = 0;
  /// Called in the order of rounds, once the round's first messages are complete.
  virtual void post_second(Round& /*round*/) {}

 protected:
  [[nodiscard]] virtual Plan plan() = 0;

  /// Elements per message of `limit_bytes` at most.
  [[nodiscard]] std::int64_t chunk_elements(std::int64_t limit_bytes) const;
  /// The i-th other rank, starting after this one, so that ranks do not all turn to the same first.
  [[nodiscard]] int peer(int i) const { return (group_.rank() + 1 + i) % group_.size(); }
  [[nodiscard]] std::int64_t element_bytes() const;
  void send(const std::byte* data, std::int64_t count, int to, int tag, Round& round) const;
  void receive(std::byte* data, std::int64_t count, int from, int tag, Round& round) const;

  const MpiGroup& group_;
  const MpiOptions& options_;
  Collective collective_;
  int tag_ = 0;
};

/// The algorithms of one lane: made once, used by every operation that runs on it.
class AlgorithmSet {
 public:
  AlgorithmSet(const MpiGroup& group, const MpiOptions& options);
  AlgorithmSet(AlgorithmSet&&) = default;
  ~AlgorithmSet();
  [[nodiscard]] Algorithm& choose(const Collective& collective);

 private:
  const MpiGroup& group_;
  const MpiOptions& options_;
  std::unique_ptr<Algorithm> whole_sum_;
  std::unique_ptr<Algorithm> direct_sum_;
  std::unique_ptr<Algorithm> library_sum_;
  std::unique_ptr<Algorithm> exchange_;
  std::unique_ptr<Algorithm> broadcast_;
  std::unique_ptr<Algorithm> shift_;
  std::unique_ptr<Algorithm> barrier_;
};

}  // namespace shardmark::comm
