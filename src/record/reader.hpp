#pragma once
// Reads a record back: FILE.h5, or what an interrupted run left as FILE.h5.partial.

#include <string>

#include "record/rows.hpp"

namespace shardmark::record {

inline constexpr std::int64_t kSchemaVersion = 1;

/// Reads everything. `path` may name FILE.h5 or FILE.h5.partial; if FILE.h5 is missing and FILE.h5.partial is there, that is
/// read and `partial` set. Columns are matched by name: unknown ones are ignored, missing ones read as missing values.
/// Throws DataError naming the file: missing, not a record, damaged, or of a newer schema.
[[nodiscard]] Record read_record(const std::string& path);

}  // namespace shardmark::record
