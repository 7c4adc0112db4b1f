#pragma once
// Writes HDF5 files of kind "vectors", right ones and wrong ones, for tests of what reads them.

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

#include "record/hdf5_handle.hpp"

namespace shardmark::testing {

/// A dataset as it shall stand in the file; empty shape: left out. Values are converted from double to `type`.
struct DatasetToWrite {
  std::vector<hsize_t> shape;
  std::vector<double> values;
  hid_t type = H5T_NATIVE_FLOAT;
};

struct VectorsToWrite {
  DatasetToWrite features;
  DatasetToWrite targets;
  std::string kind = "vectors";       // "": left out
  std::int64_t schema_version = 1;    // -1: left out
  bool variable_length_text = false;  // as h5py writes texts
};

inline void write_dataset(hid_t file, const std::string& name, const DatasetToWrite& dataset) {
  if (dataset.shape.empty()) {
    return;
  }
  const record::DataspaceHandle space(H5Screate_simple(static_cast<int>(dataset.shape.size()), dataset.shape.data(), nullptr),
                                      "H5Screate", "test file");
  const record::DatasetHandle handle(
      H5Dcreate2(file, name.c_str(), dataset.type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Dcreate2",
      "test file");
  if (!dataset.values.empty()) {
    record::hdf5_check(H5Dwrite(handle.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, dataset.values.data()),
                       "H5Dwrite", "test file");
  }
}

inline void write_text_attribute(hid_t file, const std::string& name, const std::string& value, bool variable_length) {
  const record::DatatypeHandle type(H5Tcopy(H5T_C_S1), "H5Tcopy", "test file");
  record::hdf5_check(H5Tset_size(type.get(), variable_length ? H5T_VARIABLE : value.size()), "H5Tset_size", "test file");
  record::hdf5_check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset", "test file");
  const record::DataspaceHandle space(H5Screate(H5S_SCALAR), "H5Screate", "test file");
  const record::AttributeHandle attribute(H5Acreate2(file, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                          "H5Acreate2", "test file");
  const char* text = value.c_str();
  const void* data = variable_length ? static_cast<const void*>(&text) : text;
  record::hdf5_check(H5Awrite(attribute.get(), type.get(), data), "H5Awrite", "test file");
}

/// A new file with the attributes of its kind; an empty kind and a version of -1 are left out.
[[nodiscard]] inline record::FileHandle create_data_file(const std::string& path, const std::string& kind,
                                                         std::int64_t schema_version, bool variable_length_text = false) {
  record::prepare_hdf5();
  record::FileHandle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), "H5Fcreate", "test file");
  if (!kind.empty()) {
    write_text_attribute(file.get(), "kind", kind, variable_length_text);
    write_text_attribute(file.get(), "sha256", "cafe", variable_length_text);
  }
  if (schema_version >= 0) {
    const record::DataspaceHandle space(H5Screate(H5S_SCALAR), "H5Screate", "test file");
    const record::AttributeHandle attribute(
        H5Acreate2(file.get(), "schema_version", H5T_NATIVE_INT64, space.get(), H5P_DEFAULT, H5P_DEFAULT), "H5Acreate2",
        "test file");
    record::hdf5_check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &schema_version), "H5Awrite", "test file");
  }
  return file;
}

inline void write_vectors(const std::string& path, const VectorsToWrite& content) {
  const auto file = create_data_file(path, content.kind, content.schema_version, content.variable_length_text);
  write_dataset(file.get(), "features", content.features);
  write_dataset(file.get(), "targets", content.targets);
}

}  // namespace shardmark::testing
