#include "record/output_path.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "record/file_lock.hpp"
#include "record/hdf5_handle.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;

std::string free_name(const std::string& partial) {
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}.{}", partial, number);
    if (!fs::exists(name)) {
      return name;
    }
  }
}

}  // namespace

std::string partial_name(const std::string& path) {
  return path + ".partial";
}

std::string folder_of(const std::string& path) {
  const auto folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void refuse_in_use(const std::string& path) {
  throw base::ConfigError(
      fmt::format("output.path = \"{}\": {} is in use: another run is writing it now; give this run an output.path of its own, "
                  "or wait for the other to end",
                  path, partial_name(path)));
}

void check_writable(const std::string& path, bool overwrite) {
  if (fs::is_directory(path)) {
    throw base::ConfigError(fmt::format("output.path = \"{}\" is a folder: give a file name that ends in .h5", path));
  }
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    throw base::ConfigError(
        fmt::format("output.path = \"{}\" is a device, pipe or socket: give a file name that ends in .h5", path));
  }
  if (fs::exists(path) && !overwrite) {
    throw base::ConfigError(
        fmt::format("output.path = \"{}\" exists: choose another name, or set output.overwrite = true", path));
  }
  const std::string folder = folder_of(path);
  if (!fs::is_directory(folder)) {
    throw base::ConfigError(fmt::format("output.path = \"{}\": the folder {} does not exist: make it first", path, folder));
  }
  if (is_locked(partial_name(path))) {
    refuse_in_use(path);
  }
  // Permission bits say little (root passes them, read-only mounts do not): try.
  const std::string probe = fmt::format("{}/.shardmark-probe-{}", folder, ::getpid());
  errno = 0;
  const int descriptor = ::open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    throw base::IoError(fmt::format("cannot write in {}: {}", folder, std::strerror(errno)));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

bool move_left_over(const std::string& path) {
  const std::string partial = partial_name(path);
  while (true) {
    FileLock lock;
    const auto result = lock.take_at(partial);
    if (result == FileLock::Result::no_file) {
      return true;
    }
    if (result == FileLock::Result::in_use) {
      refuse_in_use(path);
    }
    // Between opening and locking, another start may have moved this file and put its own in place: look again.
    if (lock.is_at(partial)) {
      if (::rename(partial.c_str(), free_name(partial).c_str()) != 0) {
        throw base::IoError(describe_failure("rename", partial, std::strerror(errno)));
      }
      return result == FileLock::Result::held;
    }
  }
}

void sync_path(const std::string& path, int open_flags) {
  const int descriptor = ::open(path.c_str(), open_flags | O_CLOEXEC);
  if (descriptor < 0) {
    throw base::IoError(describe_failure("open", path, std::strerror(errno)));
  }
  const bool good = ::fsync(descriptor) == 0;
  const int code = errno;
  ::close(descriptor);
  if (!good) {
    throw base::IoError(describe_failure("fsync", path, std::strerror(code)));
  }
}

}  // namespace shardmark::record
