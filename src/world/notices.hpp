#pragma once
// Small messages between ranks outside any collective: "I failed" and "I have waited too long". They let every rank end
// with the cause, and let a deadline tell stuck ranks from those that wait for them.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "world/handles.hpp"

namespace shardmark::world {

/// A notice as it travels: fixed size, below every transport's eager limit, so that sending needs no receiver.
struct Notice {
  enum class Kind : std::int32_t { failure, waiting };
  Kind kind = Kind::failure;
  std::int32_t rank = 0;
  std::int32_t code = 0;
  std::int32_t unused = 0;
  std::int64_t sequence = 0;
  std::int64_t tag = 0;
  std::int64_t bytes = 0;
  double waited_s = 0;
  char operation[24] = {};
  char purpose[16] = {};
  char host[64] = {};
  char message[768] = {};
};
static_assert(sizeof(Notice) <= 1024);

class Notices {
 public:
  explicit Notices(const World::Handles& handles) : handles_(handles) {}
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;
  ~Notices() = default;

  void send_failure(base::ExitCode code, const std::string& message);
  void send_waiting(const WaitInfo& info, double waited_s);
  /// What a wait is for: operation, number, purpose, tag and bytes.
  [[nodiscard]] std::string text_of(const WaitInfo& info) const;
  /// A notice that has arrived, if any. Never blocks.
  [[nodiscard]] std::optional<Notice> receive();
  /// Moves sends on, since over sockets a first message needs the sender's help; true once all are out. Not while
  /// operations are in flight: see World::Handles::num_lent.
  bool progress();

  /// Throws RemoteError for a failure notice.
  [[noreturn]] static void raise(const Notice& failure);
  /// This rank's wait passed its deadline, or another's did (`first` is its report): exchanges reports for `collect_s` and
  /// throws DeadlineError naming the silent ranks, or RemoteError if a failure turns up.
  [[noreturn]] void raise_deadline(const WaitInfo& info, double waited_s, double deadline_s, std::optional<Notice> first,
                                   const std::vector<std::string>& hosts);

 private:
  void send_to_all(const Notice& notice);

  const World::Handles& handles_;
  std::deque<Notice> outgoing_;  // a deque: addresses stay while sends are in flight
  std::vector<MPI_Request> requests_;
};

}  // namespace shardmark::world
