#pragma once
// Writes a run's record, crash-safe: FILE.h5.partial with status "interrupted" from creation, flushed after each block, then
// closed, re-opened, verified and renamed to FILE.h5. Rank 0 alone uses it. The reader is record/reader.hpp.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "record/output_path.hpp"  // check_writable
#include "record/rows.hpp"

namespace shardmark::record {

struct WriterOptions {
  std::string path;        // FILE.h5
  bool overwrite = false;  // false: an existing FILE.h5 is a ConfigError (exit 2), checked before anything is created
  base::FaultPlan* faults = nullptr;  // may plant enospc and short-write in phase record; step = index of the append
};

class RecordWriter {
 public:
  /// Moves a left-over FILE.h5.partial to .partial.1, .2, ..., checks free space, creates FILE.h5.partial, locks it for the
  /// writer's life and writes the attributes (status interrupted), /config and /config_keys, then flushes. Throws ConfigError
  /// (also while another run writes this FILE.h5.partial, which then stays as it is) or IoError. Where the file system has no
  /// locks a warning says so.
  RecordWriter(WriterOptions options, RunAttributes attributes, const std::string& config_toml,
               const std::vector<ConfigKeyRow>& config_keys);
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  /// Never throws: an unfinished record stays behind as FILE.h5.partial, status interrupted.
  ~RecordWriter();

  /// Each appends and flushes. Throws IoError with errno text, path and free bytes; afterwards only `abandon` may be called.
  void append_ranks(std::span<const RankRow> rows);
  void append_environment(std::span<const EnvironmentRow> rows);
  void append_steps(std::span<const StepRow> rows);
  void append_memory(std::span<const MemoryRow> rows);
  void append_collectives(std::span<const CollectiveRow> rows);
  void append_evaluations(std::span<const EvaluationRow> rows);
  void append_checks(std::span<const CheckRow> rows);
  void append_summary(const SummaryRow& row);
  void append_telemetry(std::span<const TelemetryRow> rows);
  void append_health(std::span<const HealthRow> rows);
  void append_transport(std::span<const TransportRow> rows);
  void append_trace(std::span<const TraceRow> rows);
  void append_trace_ranks(std::span<const TraceRankRow> rows);
  void append_comm(std::span<const CommRow> rows);

  /// Sets status ("complete", "stopped", "failed"), error and exit code, closes, re-opens, verifies every row count and that
  /// all data read back (Fletcher32), syncs and renames. Throws IoError; FILE.h5 of an earlier run is then still intact.
  void finish(const std::string& status, const std::string& error, int exit_code);
  /// Closes what is there as FILE.h5.partial (status interrupted) without throwing.
  void abandon() noexcept;

  [[nodiscard]] const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardmark::record
