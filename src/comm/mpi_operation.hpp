#pragma once
// One operation in flight: a window of rounds, moved on whenever someone calls `advance`.

#include <cstdint>
#include <vector>

#include "comm/mpi_algorithms.hpp"

namespace shardmark::comm {

class MpiOperation {
 public:
  MpiOperation(MpiGroup& group, const MpiOptions& options);
  MpiOperation(MpiOperation&&) = default;
  ~MpiOperation() = default;

  /// Takes up the operation and posts its first messages.
  void begin(const Collective& collective, std::int64_t sequence);
  /// Moves it on without blocking; true once it is complete.
  [[nodiscard]] bool advance();
  /// After a failure; see withdraw().
  void abandon() noexcept;

 private:
  [[nodiscard]] Round& slot(std::int64_t round) { return rounds_[static_cast<std::size_t>(round) % rounds_.size()]; }
  void post_available();

  MpiGroup& group_;
  AlgorithmSet algorithms_;
  Algorithm* algorithm_ = nullptr;
  Plan plan_;
  std::vector<Round> rounds_;
  // Rounds [oldest_, second_) have posted their second messages, [second_, next_) their first.
  std::int64_t oldest_ = 0;
  std::int64_t second_ = 0;
  std::int64_t next_ = 0;
};

}  // namespace shardmark::comm
