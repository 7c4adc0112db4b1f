#pragma once
// Durations come from this monotonic clock only; wall time is a label and never part of a duration.

#include <chrono>
#include <string>

namespace shardmark::base {

/// Seconds of the monotonic clock since an arbitrary start. Differences of two readings on one rank are durations.
[[nodiscard]] inline double now_s() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// UTC wall time as 2026-01-31T12:34:56Z, for labels.
[[nodiscard]] std::string utc_timestamp();

/// UTC wall time as 20260131-123456, for file names.
[[nodiscard]] std::string utc_compact();

}  // namespace shardmark::base
