#pragma once
// Columns that commands print and no record holds: what `explain` says of them. Columns that share a record's name mean the
// same there.

#include <span>

#include "record/schema.hpp"

namespace shardmark::analysis {

/// Named "compare.ratio", "plan.fits", ...; offset and size mean nothing.
[[nodiscard]] std::span<const record::Column> derived_columns();

}  // namespace shardmark::analysis
