#include "base/error.hpp"

#include <fmt/format.h>

#include <new>

namespace shardmark::base {

std::string_view name_of(ExitCode code) {
  switch (code) {
    case ExitCode::good: return "good";
    case ExitCode::failed: return "failed";
    case ExitCode::usage: return "usage";
    case ExitCode::regression: return "regression";
    case ExitCode::inconclusive: return "inconclusive";
    case ExitCode::environment: return "environment";
    case ExitCode::out_of_memory: return "out of memory";
    case ExitCode::deadline: return "deadline";
    case ExitCode::wrong_result: return "wrong result";
    case ExitCode::mismatch: return "mismatch";
    case ExitCode::io: return "input/output";
    case ExitCode::stopped: return "stopped";
  }
  return "unknown";
}

namespace {

std::string join_problems(const std::vector<std::string>& problems) {
  if (problems.size() == 1) {
    return problems.front();
  }
  std::string text = fmt::format("{} problems:", problems.size());
  for (const auto& problem : problems) {
    text += "\n  - " + problem;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> problems)
    : Error(ExitCode::usage, join_problems(problems)), problems_(std::move(problems)) {}

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    return ours->code();
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ExitCode::out_of_memory;
  }
  return ExitCode::failed;
}

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
  throw InvariantError(fmt::format("{} (invariant {} broken at {}:{})", message, expression, file, line));
}

}  // namespace shardmark::base
