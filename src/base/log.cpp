#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>

namespace shardmark::base {
namespace {

struct Identity {
  int world_rank = 0;
  int world_size = 1;
  std::string prefix;
};

Identity& identity() {
  static Identity self;
  return self;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("shardmark", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("shardmark: %v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

/// Results that still lie in this process's buffer go out first: where both streams end in one place (2>&1), messages follow
/// what they speak of.
void write_line(const std::string& text) {
  std::fflush(stdout);
  logger().info(text);
}

}  // namespace

void set_log_identity(int world_rank, int world_size, const std::string& host) {
  identity() = {world_rank, world_size, world_size > 1 ? fmt::format("[rank {} on {}] ", world_rank, host) : ""};
}

void log_info(const std::string& message) {
  if (identity().world_rank == 0) {
    write_line(message);
  }
}

void log_warning(const std::string& message) {
  if (identity().world_rank == 0) {
    write_line("warning: " + message);
  }
}

void log_error(const std::string& message) {
  write_line("error: " + identity().prefix + message);
}

void log_rank(const std::string& message) {
  write_line(identity().prefix + message);
}

}  // namespace shardmark::base
