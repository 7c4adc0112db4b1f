#pragma once
// HDF5 pieces that writer and reader share: compound types from the schema, attributes. Inside the record folder only.
// `path` is for messages. Everything throws Hdf5Error if the library says no.

#include <hdf5.h>

#include <cstdint>
#include <string>

#include "record/hdf5_handle.hpp"
#include "record/schema.hpp"

namespace shardmark::record {

/// The compound type of a table's struct in memory; also its type in the file.
[[nodiscard]] DatatypeHandle make_row_type(const Table& table, const std::string& path);
/// A fixed-size, NUL-padded string type.
[[nodiscard]] DatatypeHandle make_text_type(std::size_t bytes, const std::string& path);

/// Sets a text attribute, replacing one of that name. Longer than 60 KiB is cut: HDF5 refuses 64 KiB.
void set_text_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& path);
void set_whole_attribute(hid_t object, const std::string& name, std::int64_t value, const std::string& path);
/// "" if there is no such attribute, or none of fixed-size text.
[[nodiscard]] std::string get_text_attribute(hid_t object, const std::string& name, const std::string& path);
/// -1 if there is no such attribute.
[[nodiscard]] std::int64_t get_whole_attribute(hid_t object, const std::string& name, const std::string& path);

/// Rows of a data set; -1 if it is not 1-D.
[[nodiscard]] std::int64_t num_rows(hid_t dataset, const std::string& path);

}  // namespace shardmark::record
