#pragma once
// Root attributes of a record, to and from HDF5. Inside the record folder only.

#include <hdf5.h>

#include <string>

#include "record/rows.hpp"

namespace shardmark::record {

/// Throws Hdf5Error.
void write_run_attributes(hid_t root, const RunAttributes& attributes, const std::string& path);
/// Those that the file lacks are -1 or "". Throws Hdf5Error if one cannot be read.
[[nodiscard]] RunAttributes read_run_attributes(hid_t root, const std::string& path);

}  // namespace shardmark::record
