#pragma once
// The errors of the suite and the exit codes they end in. Every error carries a message that names the thing at
// fault and the remedy; the code is what the process returns. Knows nothing of MPI or HDF5.

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::base {

/// What a process of ours returns. The record's status is the truth; a launcher may turn a code into another.
enum class ExitCode : int {
  good = 0,
  failed = 1,
  usage = 2,
  regression = 3,
  inconclusive = 4,
  environment = 5,
  out_of_memory = 6,
  deadline = 7,
  wrong_result = 8,
  mismatch = 9,
  io = 10,
  stopped = 75,
};

[[nodiscard]] std::string_view name_of(ExitCode code);

/// Base of all our exceptions.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Bad usage, configuration or data (exit 2). Lists every problem found, not only the first.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> problems);
  explicit ConfigError(std::string problem) : ConfigError(std::vector<std::string>{std::move(problem)}) {}
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// A data file, checkpoint or record that cannot be used (exit 2).
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// Launcher, device or library is wrong (exit 5).
class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(const std::string& message) : Error(ExitCode::environment, message) {}
};

/// Memory ran out (exit 6).
class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& message) : Error(ExitCode::out_of_memory, message) {}
};

/// A wait passed its deadline, or a rank was lost (exit 7).
class DeadlineError : public Error {
 public:
  explicit DeadlineError(const std::string& message) : Error(ExitCode::deadline, message) {}
};

/// A check of numerics failed (exit 8).
class NumericsError : public Error {
 public:
  explicit NumericsError(const std::string& message) : Error(ExitCode::wrong_result, message) {}
};

/// Ranks disagree on a collective, on parameters or on the configuration (exit 9).
class MismatchError : public Error {
 public:
  explicit MismatchError(const std::string& message) : Error(ExitCode::mismatch, message) {}
};

/// Writing or reading failed: disk full, read-only (exit 10).
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(ExitCode::io, message) {}
};

/// Another rank failed and said so; carries that rank's message and code.
class RemoteError : public Error {
 public:
  RemoteError(ExitCode code, const std::string& message) : Error(code, message) {}
};

/// A broken invariant of ours (exit 1): SM_CHECK.
class InvariantError : public Error {
 public:
  explicit InvariantError(const std::string& message) : Error(ExitCode::failed, message) {}
};

/// The exit code of any exception: ours by its code, std::bad_alloc 6, others 1.
[[nodiscard]] ExitCode exit_code_of(const std::exception& error);

/// Throws InvariantError naming expression and place; see SM_CHECK.
[[noreturn]] void fail_check(const char* expression, const char* file, int line, const std::string& message);

}  // namespace shardmark::base

/// Always on: a broken invariant. The message may be any expression that makes a std::string.
#define SM_CHECK(condition, message)                                                       \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::shardmark::base::fail_check(#condition, __FILE__, __LINE__, std::string(message)); \
    }                                                                                      \
  } while (false)

/// As SM_CHECK, in hot loops: on in debug builds only.
#ifdef SM_DEBUG_CHECKS
#define SM_DCHECK(condition, message) SM_CHECK(condition, message)
#else
#define SM_DCHECK(condition, message) static_cast<void>(0)
#endif
