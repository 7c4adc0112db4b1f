#pragma once
// Tells across processes whether a file is being written: an advisory lock that belongs to the open file and ends with the
// process, however that ends. Knows nothing of HDF5.
//
// Open-file-description locks, not flock: HDF5 locks the same open file by flock, and on Linux neither sees the other. On NFS
// both become one lock of one owner, so they get along there too; but where one is given back the other may be lost, which is
// why the end of a record also asks `is_at`.

#include <string>

namespace shardmark::record {

class FileLock {
 public:
  enum class Result {
    held,
    in_use,   // another process, or another open file of this one, holds it
    no_file,  // `take_at` alone
    no_locks  // the file system has none; `reason` says what it answered
  };

  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { release(); }

  /// Locks the file that `descriptor` has open for writing, until `release`; the descriptor stays the caller's and may be
  /// closed before. Never waits. Throws IoError for what is none of the results.
  [[nodiscard]] Result take(int descriptor, const std::string& path);
  /// The same for the file at `path`, opened here.
  [[nodiscard]] Result take_at(const std::string& path);

  /// From now on others may read under locks of their own, as HDF5 does, and the flock that HDF5 left on the open file is
  /// given back; `take` of others is still refused.
  void share() noexcept;
  /// Whether the locked file is still the one at `path`; true where nothing is held.
  [[nodiscard]] bool is_at(const std::string& path) const;
  /// Gives the lock up even while other descriptors of the same open file live.
  void release() noexcept;

  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  [[nodiscard]] Result lock(const std::string& path);

  int descriptor_ = -1;
  std::string reason_;
};

/// Whether some process holds a lock on the file at `path`. False also where that cannot be told.
[[nodiscard]] bool is_locked(const std::string& path);

}  // namespace shardmark::record
