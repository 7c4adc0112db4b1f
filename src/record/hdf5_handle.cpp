#include "record/hdf5_handle.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "base/text.hpp"

namespace shardmark::record {
namespace {

extern "C" herr_t shardmark_innermost_reason(unsigned depth, const H5E_error2_t* entry, void* client) {
  // Walked upwards, the first entry is the place of the failure; the last is the call we made.
  auto* reason = static_cast<std::string*>(client);
  if (depth == 0 && entry->desc != nullptr) {
    *reason = entry->desc;
  }
  return 0;
}

std::string take_reason() {
  std::string reason;
  if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, shardmark_innermost_reason, &reason) < 0) {
    reason.clear();
  }
  static_cast<void>(H5Eclear2(H5E_DEFAULT));  // a stack that stays full only repeats itself in the next message
  return reason;
}

}  // namespace

std::string describe_failure(std::string_view call, const std::string& path, std::string_view reason) {
  const long long free_bytes = free_bytes_at(path);
  return fmt::format(
      "{}: {} failed: {} ({})", path, call, reason.empty() ? "the library gives no reason" : reason,
      free_bytes < 0 ? "free space unknown" : fmt::format("{} bytes free on its file system", base::format_count(free_bytes)));
}

Hdf5Error::Hdf5Error(std::string_view call, const std::string& path) : Hdf5Error(call, path, take_reason()) {}

Hdf5Error::Hdf5Error(std::string_view call, const std::string& path, std::string reason)
    : IoError(describe_failure(call, path, reason)), call_(call), path_(path), reason_(std::move(reason)) {}

void prepare_hdf5() {
  static const bool prepared = [] {
    // Too late if someone else used the library first; then only its printing is switched off, which is all that is lost.
    static_cast<void>(H5dont_atexit());
    struct sigaction action {};
    if (sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action.sa_handler = SIG_IGN;
      static_cast<void>(sigaction(SIGXFSZ, &action, nullptr));
    }
    return hdf5_check(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "H5Eset_auto2", "HDF5 library") >= 0;
  }();
  static_cast<void>(prepared);
}

long long free_bytes_at(const std::string& path) {
  std::filesystem::path place(path);
  std::error_code ignored;
  if (!std::filesystem::exists(place, ignored)) {
    place = place.has_parent_path() ? place.parent_path() : std::filesystem::path(".");
  }
  struct statvfs facts {};
  // Some network and overlay file systems report no blocks at all: unknown, not full.
  if (statvfs(place.c_str(), &facts) != 0 || facts.f_blocks == 0) {
    return -1;
  }
  return static_cast<long long>(facts.f_bavail) * static_cast<long long>(facts.f_frsize);
}

}  // namespace shardmark::record
