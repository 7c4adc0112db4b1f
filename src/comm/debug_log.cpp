#include "comm/debug_log.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/environment.hpp"

namespace shardmark::comm {
namespace {

struct Capture {
  int file = -1;
  std::string problem;
};

/// Lines of paths bear INIT and the name of their transport; one of them is enough to pass.
constexpr const char* kSubsystems = "INIT,P2P,SHM,NET";

Capture begin() {
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) {
    if (const auto value = base::environment_variable(name)) {
      return {-1, fmt::format("{} = \"{}\" directs NCCL's log elsewhere", name, *value)};
    }
  }
  // Memory under a file's name: nothing is left behind, however the process ends.
  const int file = memfd_create("nccl-log", MFD_CLOEXEC);
  if (file < 0) {
    return {-1, fmt::format("no memory file for NCCL's log: {}", std::strerror(errno))};
  }
  base::set_environment_variable("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", file));
  base::set_environment_variable("NCCL_DEBUG_SUBSYS", kSubsystems);
  base::set_environment_variable("NCCL_DEBUG", "INFO");
  return {file, ""};
}

/// Of the process, as NCCL's log is.
const Capture& capture() {
  static const Capture instance = begin();
  return instance;
}

std::int64_t size_of(int file) {
  struct stat facts {};
  return fstat(file, &facts) == 0 ? static_cast<std::int64_t>(facts.st_size) : 0;
}

}  // namespace

DebugLog::DebugLog() : problem_(capture().problem), start_(captured() ? size_of(capture().file) : 0) {}

std::string DebugLog::text() const {
  std::string text;
  if (!captured()) {
    return text;
  }
  std::array<char, 1 << 14> part{};
  for (std::int64_t at = start_;;) {
    const auto count = pread(capture().file, part.data(), part.size(), at);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return text;
    }
    text.append(part.data(), static_cast<std::size_t>(count));
    at += count;
  }
}

}  // namespace shardmark::comm
