// Tries the folder of records: a file written, locked as HDF5 and as a run lock it, and removed.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "app/doctor/gather.hpp"
#include "base/error.hpp"
#include "record/file_lock.hpp"

namespace shardmark::app::doctor {
namespace {

namespace fs = std::filesystem;

/// Names of file systems by the number that the kernel gives them (linux/magic.h, and the vendors' headers).
std::string file_system_name(std::uint32_t magic) {
  switch (magic) {
    case 0x6969: return "nfs";
    case 0x01021994: return "tmpfs";
    case 0x858458F6: return "ramfs";
    case 0xFF534D42: return "cifs";
    case 0xFE534D42: return "smb2";
    case 0x0BD00BD0: return "lustre";
    case 0x47504653: return "gpfs";
    case 0x19830326: return "beegfs";
    case 0x00C36400: return "ceph";
    case 0x65735546: return "fuse";
    case 0x794C7630: return "overlay";
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x2FC12FC1: return "zfs";
    default: return fmt::format("kind 0x{:x}", magic);
  }
}

/// A file that vanishes from its folder with this object.
class Probe {
 public:
  explicit Probe(const std::string& folder) : path_(fmt::format("{}/.shardmark-doctor-{}", folder, ::getpid())) {
    errno = 0;
    descriptor_ = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
      ::unlink(path_.c_str());
    }
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

std::string lock_problem(const Probe& probe) {
  record::FileLock lock;
  try {
    switch (lock.take(probe.descriptor(), probe.path())) {
      case record::FileLock::Result::held: return "";
      case record::FileLock::Result::no_locks: return lock.reason();
      case record::FileLock::Result::in_use:
      case record::FileLock::Result::no_file: break;
    }
    return "a lock on a new file was refused";
  } catch (const base::IoError& error) {
    return error.what();
  }
}

}  // namespace

FolderFacts gather_folder(const std::string& folder) {
  FolderFacts facts;
  std::error_code error;
  const auto whole = fs::absolute(folder, error);
  facts.path = error ? folder : whole.lexically_normal().string();
  if (facts.path.size() > 1 && facts.path.ends_with('/')) {
    facts.path.pop_back();
  }
  if (!fs::is_directory(facts.path, error)) {
    facts.problem = fs::exists(facts.path, error) ? "is not a folder" : "does not exist";
    return facts;
  }
  struct statvfs space {};
  struct statfs kind {};
  if (::statvfs(facts.path.c_str(), &space) == 0 && ::statfs(facts.path.c_str(), &kind) == 0) {
    facts.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    facts.file_system = file_system_name(static_cast<std::uint32_t>(kind.f_type));
  }
  const Probe probe(facts.path);
  if (probe.descriptor() < 0) {
    facts.problem = std::strerror(errno);
    return facts;
  }
  if (flock(probe.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    facts.flock_problem = fmt::format("{} (errno {})", std::strerror(errno), errno);
  } else {
    static_cast<void>(flock(probe.descriptor(), LOCK_UN));  // on NFS both locks are one
  }
  facts.file_lock_problem = lock_problem(probe);
  constexpr char kByte = '\n';
  if (::write(probe.descriptor(), &kByte, 1) != 1 || fsync(probe.descriptor()) != 0) {
    facts.problem = std::strerror(errno);
  }
  return facts;
}

}  // namespace shardmark::app::doctor
