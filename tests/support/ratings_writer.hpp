#pragma once
// Writes HDF5 files of kind "ratings", right ones and wrong ones, for tests of what reads them.

#include "tests/support/vectors_writer.hpp"

namespace shardmark::testing {

struct RatingsToWrite {
  DatasetToWrite user{.shape = {}, .values = {}, .type = H5T_NATIVE_INT64};
  DatasetToWrite item{.shape = {}, .values = {}, .type = H5T_NATIVE_INT64};
  DatasetToWrite label{.shape = {}, .values = {}, .type = H5T_NATIVE_FLOAT};
  std::int64_t num_users = -1;  // -1: left out
  std::int64_t num_items = -1;
  std::string kind = "ratings";
};

inline void write_number_attribute(hid_t file, const std::string& name, std::int64_t value) {
  const record::DataspaceHandle space(H5Screate(H5S_SCALAR), "H5Screate", "test file");
  const record::AttributeHandle attribute(
      H5Acreate2(file, name.c_str(), H5T_NATIVE_INT64, space.get(), H5P_DEFAULT, H5P_DEFAULT), "H5Acreate2", "test file");
  record::hdf5_check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "H5Awrite", "test file");
}

inline void write_ratings(const std::string& path, const RatingsToWrite& content) {
  const auto file = create_data_file(path, content.kind, 1);
  for (const auto& [name, value] : {std::pair("num_users", content.num_users), std::pair("num_items", content.num_items)}) {
    if (value >= 0) {
      write_number_attribute(file.get(), name, value);
    }
  }
  write_dataset(file.get(), "user", content.user);
  write_dataset(file.get(), "item", content.item);
  write_dataset(file.get(), "label", content.label);
}

/// `rows` ratings: row r is by user r % 5 of item 100 + r, positive where r is odd.
[[nodiscard]] inline RatingsToWrite some_ratings(std::size_t rows) {
  RatingsToWrite content;
  content.user.shape = content.item.shape = content.label.shape = {rows};
  for (std::size_t row = 0; row < rows; ++row) {
    content.user.values.push_back(static_cast<double>(row % 5));
    content.item.values.push_back(static_cast<double>(100 + row));
    content.label.values.push_back(static_cast<double>(row % 2));
  }
  content.num_users = 5;
  content.num_items = static_cast<std::int64_t>(rows);
  return content;
}

}  // namespace shardmark::testing
