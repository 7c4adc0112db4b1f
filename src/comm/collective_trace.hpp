#pragma once
// What the counting decorator tells a trace of each collective. Names are interned once, so that a collective only looks them
// up by its enums.

#include <array>
#include <cstdint>
#include <string>

#include "base/trace.hpp"
#include "comm/communicator.hpp"

namespace shardmark::comm {

class CollectiveTrace {
 public:
  /// `trace` is lent.
  explicit CollectiveTrace(base::Trace& trace);

  /// The name of a group of ranks; allocates when it is new.
  [[nodiscard]] base::TraceName group(const std::string& name) { return trace_.intern(name); }
  /// A collective starts. Its event, for `complete` and `waited`; -1 if it was dropped.
  [[nodiscard]] std::int64_t start(const Collective& collective, base::TraceName group, double now_s);
  void complete(std::int64_t event, double now_s) { trace_.end(event, now_s); }
  /// The thread waited for the event's collective.
  void waited(std::int64_t event, double start_s, double end_s);

 private:
  static constexpr std::size_t kOperations = static_cast<std::size_t>(Operation::barrier) + 1;
  static constexpr std::size_t kPurposes = static_cast<std::size_t>(Purpose::control) + 1;
  static constexpr std::size_t kDTypes = static_cast<std::size_t>(base::DType::uint8) + 1;

  base::Trace& trace_;
  std::array<base::TraceName, kOperations> operations_{};
  std::array<base::TraceName, kOperations> waits_{};
  std::array<base::TraceName, kPurposes> purposes_{};
  std::array<base::TraceName, kDTypes> dtypes_{};
  std::int64_t num_started_ = 0;
};

}  // namespace shardmark::comm
