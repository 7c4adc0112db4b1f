#pragma once
// Faults planted by SHARDMARK_FAULT=rank:phase:step:kind[:value] for tests of failure handling. Compiled in with SM_FAULTS
// and named in the record; without SM_FAULTS a set variable is refused rather than ignored.

#include <cstdint>
#include <optional>
#include <string>

namespace shardmark::base {

enum class FaultPhase { init, data, forward, backward, comm, optimizer, checkpoint, record };
enum class FaultKind { kill, stop, exit, raise, nan, bitflip, slow, enospc, short_write, mismatch };

struct Fault {
  int world_rank = -1;
  FaultPhase phase = FaultPhase::init;
  std::int64_t step = 0;
  FaultKind kind = FaultKind::kill;
  std::string value;
};

/// Parses the text of SHARDMARK_FAULT. Throws ConfigError naming the part at fault and what is accepted.
[[nodiscard]] Fault parse_fault(const std::string& text);

/// The fault planted for one rank, if any. Process-level kinds (kill, stop, exit, raise, slow) act inside `reach`; the
/// others (nan, bitflip, enospc, short_write, mismatch) are asked for by the code that can plant them. enospc in phase record
/// is a full disk, in phase forward a gather that finds no memory. bitflip in phase optimizer flips a bit of a parameter; in
/// phase comm, planted by `shardmark comm` alone, of element `value` (default 0) of what the rank received in row `step` of
/// the table, counted from 0, before the row is checked.
class FaultPlan {
 public:
  FaultPlan() = default;
  explicit FaultPlan(Fault fault) : fault_(std::move(fault)) {}

  /// Reads SHARDMARK_FAULT. Throws ConfigError if it is malformed, or set in a build without fault points.
  [[nodiscard]] static FaultPlan from_environment();

  /// Binds the plan to this process; before it nothing fires.
  void set_world_rank(int world_rank) { world_rank_ = world_rank; }

  /// Passes a fault point. kill: SIGKILL; stop: SIGSTOP; exit: _exit(value or 3); raise ("throw"): std::runtime_error;
  /// slow: sleeps `value` milliseconds (default 20) at this step and every later one.
  void reach(FaultPhase phase, std::int64_t step) {
#ifdef SM_FAULTS
    if (fault_) [[unlikely]] {
      act(phase, step);
    }
#else
    static_cast<void>(phase);
    static_cast<void>(step);
#endif
  }

  /// The planted value if `kind` is due here ("" if none was given), once; absent otherwise.
  [[nodiscard]] std::optional<std::string> due(FaultPhase phase, std::int64_t step, FaultKind kind);

  /// The text for the record; "" if none is planted.
  [[nodiscard]] const std::string& text() const {
    return text_;
  }

 private:
  void act(FaultPhase phase, std::int64_t step);
  [[nodiscard]] bool matches(FaultPhase phase, std::int64_t step) const;

  std::optional<Fault> fault_;
  std::string text_;
  int world_rank_ = -1;
  bool spent_ = false;
};

}  // namespace shardmark::base
