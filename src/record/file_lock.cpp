#include "record/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "record/hdf5_handle.hpp"

namespace shardmark::record {
namespace {

constexpr int kNotSupported = 524;  // the kernel's ENOTSUPP, which NFS lets through; no header of ours names it

struct flock whole_file(int type) {
  struct flock lock {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  return lock;
}

bool means_no_locks(int code) {
  return code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP || code == EINVAL || code == kNotSupported;
}

}  // namespace

FileLock::Result FileLock::take(int descriptor, const std::string& path) {
  release();
  descriptor_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (descriptor_ < 0) {
    throw base::IoError(describe_failure("fcntl", path, std::strerror(errno)));
  }
  return lock(path);
}

FileLock::Result FileLock::take_at(const std::string& path) {
  release();
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int code = errno;
    if (code == ENOENT) {
      return Result::no_file;
    }
    throw base::IoError(describe_failure("open", path, std::strerror(code)));
  }
  return lock(path);
}

FileLock::Result FileLock::lock(const std::string& path) {
  auto request = whole_file(F_WRLCK);
  if (fcntl(descriptor_, F_OFD_SETLK, &request) == 0) {
    return Result::held;
  }
  const int code = errno;
  close(std::exchange(descriptor_, -1));
  if (code == EAGAIN || code == EACCES) {
    return Result::in_use;
  }
  if (means_no_locks(code)) {
    reason_ = std::strerror(code);
    return Result::no_locks;
  }
  throw base::IoError(describe_failure("locking", path, std::strerror(code)));
}

void FileLock::share() noexcept {
  if (descriptor_ >= 0) {
    static_cast<void>(flock(descriptor_, LOCK_UN));  // HDF5 leaves it to close(), which our duplicate defers
    auto request = whole_file(F_RDLCK);
    static_cast<void>(fcntl(descriptor_, F_OFD_SETLK, &request));  // a lock lost meanwhile shows in `is_at`
  }
}

bool FileLock::is_at(const std::string& path) const {
  if (descriptor_ < 0) {
    return true;
  }
  struct stat held {};
  struct stat found {};
  return fstat(descriptor_, &held) == 0 && stat(path.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

void FileLock::release() noexcept {
  if (descriptor_ >= 0) {
    auto request = whole_file(F_UNLCK);
    static_cast<void>(fcntl(descriptor_, F_OFD_SETLK, &request));
    close(std::exchange(descriptor_, -1));
  }
}

bool is_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return false;
  }
  auto request = whole_file(F_WRLCK);
  const bool told = fcntl(descriptor, F_OFD_GETLK, &request) == 0;
  close(descriptor);
  return told && request.l_type != F_UNLCK;
}

}  // namespace shardmark::record
