#pragma once
// Owners of HDF5 identifiers, and the error their calls end in. Knows nothing of records; data files use it too.
//
// Two traps of HDF5 1.10 shape this file. On a full disk calls may report success, and closing may then crash: after a
// write error `release` handles instead of closing them. And the library's atexit handler would write once more at the
// end of the process: `prepare_hdf5` switches it off, so whoever writes must close.

#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace shardmark::record {

/// A failed HDF5 call (exit 10). The message carries call, path, the library's innermost reason and free bytes.
class Hdf5Error : public base::IoError {
 public:
  /// Reads and clears the library's error stack; call it right after the failure.
  Hdf5Error(std::string_view call, const std::string& path);
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What the library said, innermost reason first; "" if it said nothing.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  Hdf5Error(std::string_view call, const std::string& path, std::string reason);

  std::string call_;
  std::string path_;
  std::string reason_;
};

/// Silences the library's own printing and its atexit handler, and has a file beyond the process's size limit (ulimit -f)
/// reported as an error instead of by a deadly signal. Call before the first use of HDF5; cheap, may be repeated.
void prepare_hdf5();

/// Bytes an ordinary user may still write to the file system of `path` (a file that may not exist yet, or a folder);
/// -1 where the system does not say.
[[nodiscard]] long long free_bytes_at(const std::string& path);

/// "PATH: CALL failed: REASON (N bytes free on its file system)", the form of all messages about writing and reading.
[[nodiscard]] std::string describe_failure(std::string_view call, const std::string& path, std::string_view reason);

/// Passes a result of any HDF5 call through, or throws Hdf5Error if it is negative.
template <typename Result>
Result hdf5_check(Result result, std::string_view call, const std::string& path) {
  if (result < 0) [[unlikely]] {
    throw Hdf5Error(call, path);
  }
  return result;
}

/// Move-only owner of one identifier. The destructor closes and drops the result; writers call `close`.
template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  /// Takes over what `call` returned. Throws Hdf5Error if that is negative.
  Hdf5Handle(hid_t id, std::string_view call, const std::string& path) : id_(hdf5_check(id, call, path)) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() {
    if (id_ >= 0) {
      static_cast<void>(Close(id_));
    }
  }

  [[nodiscard]] hid_t get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }

  /// Closes now. Throws Hdf5Error if the library says no; the handle is empty either way.
  void close(std::string_view call, const std::string& path) {
    if (id_ >= 0) {
      hdf5_check(Close(std::exchange(id_, H5I_INVALID_HID)), call, path);
    }
  }
  /// Gives the identifier up without a call into the library.
  hid_t release() noexcept { return std::exchange(id_, H5I_INVALID_HID); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using FileHandle = Hdf5Handle<H5Fclose>;
using DatasetHandle = Hdf5Handle<H5Dclose>;
using DataspaceHandle = Hdf5Handle<H5Sclose>;
using DatatypeHandle = Hdf5Handle<H5Tclose>;
using AttributeHandle = Hdf5Handle<H5Aclose>;
using PropertyHandle = Hdf5Handle<H5Pclose>;

}  // namespace shardmark::record
