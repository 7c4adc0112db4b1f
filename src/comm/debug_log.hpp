#pragma once
// NCCL's log of this process, kept in memory so that it can be read. NCCL opens its log once in a process's life and never
// closes it: the memory behind it lives as long, whoever reads it.

#include <cstdint>
#include <string>

namespace shardmark::comm {

class DebugLog {
 public:
  /// Before NCCL's first call in the process, and while no other thread may read the environment: directs the log by
  /// NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE. Where one of them is set already, all stay as they are. Never fails:
  /// `problem` says why nothing is captured. Later objects read what is written from their making on.
  DebugLog();

  [[nodiscard]] bool captured() const { return problem_.empty(); }
  /// "" if the log is captured.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// What was written since this object was made; "" if nothing is captured.
  [[nodiscard]] std::string text() const;

 private:
  std::string problem_;
  std::int64_t start_ = 0;
};

}  // namespace shardmark::comm
