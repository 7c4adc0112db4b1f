#pragma once
// What all kinds of data files share: opening read-only with a message for every way it can fail, text and number
// attributes, the shape and type of a dataset, reading rows. Inside the data folder only.

#include <hdf5.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "record/hdf5_handle.hpp"

namespace shardmark::data {

struct DataFile {
  std::string path;
  record::FileHandle handle;
};

/// Opens an HDF5 file read-only. Throws DataError naming the path and whether it is missing, a folder, unreadable, not
/// HDF5, damaged or locked by another process. What follows throws record::Hdf5Error if the library cannot read.
[[nodiscard]] DataFile open_data_file(const std::string& path);

/// A text attribute of the root, fixed or variable length; "" if there is none or it is not one text.
[[nodiscard]] std::string text_attribute(const DataFile& file, const std::string& name);
/// A whole-number attribute of the root; -1 if there is none or it is not one whole number.
[[nodiscard]] std::int64_t number_attribute(const DataFile& file, const std::string& name);

/// Problems of the attributes kind and schema_version, as sentences that start with the path; none if both are right.
[[nodiscard]] std::vector<std::string> kind_problems(const DataFile& file, const std::string& kind);

/// A dataset as found. `type` is a NumPy-like name: float32, int64, "compound", ...
struct Dataset {
  std::string what;  // "data file PATH: dataset /NAME", how messages begin
  record::DatasetHandle handle;
  std::vector<std::int64_t> shape;
  std::string type;
};

/// Opens a dataset of the root; its handle is empty if there is nothing of that name.
[[nodiscard]] Dataset open_dataset(const DataFile& file, const std::string& name);

/// Shape as text: "(1797, 64)".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// Reads rows of a 1-D or 2-D dataset into memory of the given native type.
void read_rows(const Dataset& dataset, RowRange rows, hid_t memory_type, void* out);

/// How many of `rows` from the front on can be read together: consecutive rows, or fillers (-1). `rows` is not empty.
[[nodiscard]] std::size_t run_length(std::span<const std::int64_t> rows);

}  // namespace shardmark::data
