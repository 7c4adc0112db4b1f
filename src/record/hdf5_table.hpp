#pragma once
// HDF5 pieces that writer and reader share: compound types from the schema, attributes, files. Inside the record folder only.

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>

#include "record/hdf5_handle.hpp"
#include "record/schema.hpp"

namespace shardmark::record {

/// Text of a failed call with errno: "H5Dwrite failed on FILE: No space left on device (12.0 KiB free)".
[[nodiscard]] std::string describe_failure(const std::string& call, const std::string& path);

/// Owns one identifier; closes it with the given call. Closing errors matter only to writers: they call `close`.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      close_ = other.close_;
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  [[nodiscard]] hid_t get() const { return id_; }
  [[nodiscard]] explicit operator bool() const { return id_ >= 0; }
  /// Closes and says whether that worked.
  [[nodiscard]] bool close() { return id_ < 0 || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }
  void reset() noexcept {
    if (id_ >= 0) {
      close_(std::exchange(id_, H5I_INVALID_HID));
    }
  }
  /// Forgets the identifier without touching HDF5: after an input/output error its own clean-up may crash.
  void leak() noexcept { id_ = H5I_INVALID_HID; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// The compound type of a table's struct in memory; also its type in the file.
[[nodiscard]] Handle make_row_type(const Table& table);
/// A fixed-size, NUL-padded string type.
[[nodiscard]] Handle make_text_type(std::size_t bytes);

/// Sets a text attribute, replacing one of that name. Longer than 60 KiB is cut: HDF5 refuses 64 KiB. False on failure.
[[nodiscard]] bool set_text_attribute(hid_t object, const std::string& name, const std::string& value);
[[nodiscard]] bool set_whole_attribute(hid_t object, const std::string& name, std::int64_t value);
/// "" or `missing` if there is no such attribute.
[[nodiscard]] std::string get_text_attribute(hid_t object, const std::string& name);
[[nodiscard]] std::int64_t get_whole_attribute(hid_t object, const std::string& name, std::int64_t missing);

/// Rows of a 1-D data set, -1 if it cannot be told.
[[nodiscard]] std::int64_t num_rows(hid_t dataset);

}  // namespace shardmark::record
