#include "record/hdf5_table.hpp"

#include <algorithm>

namespace shardmark::record {
namespace {

constexpr std::size_t kMaxTextAttribute = 60 * 1024;

void write_attribute(hid_t object, const std::string& name, hid_t type, const void* value, const std::string& path) {
  if (hdf5_check(H5Aexists(object, name.c_str()), "H5Aexists", path) > 0) {
    hdf5_check(H5Adelete(object, name.c_str()), "H5Adelete", path);
  }
  const DataspaceHandle space(H5Screate(H5S_SCALAR), "H5Screate", path);
  AttributeHandle attribute(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), "H5Acreate2", path);
  hdf5_check(H5Awrite(attribute.get(), type, value), "H5Awrite", path);
  attribute.close("H5Aclose", path);
}

AttributeHandle open_attribute(hid_t object, const std::string& name, const std::string& path) {
  if (hdf5_check(H5Aexists(object, name.c_str()), "H5Aexists", path) == 0) {
    return {};
  }
  return {H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen", path};
}

}  // namespace

DatatypeHandle make_text_type(std::size_t bytes, const std::string& path) {
  DatatypeHandle type(H5Tcopy(H5T_C_S1), "H5Tcopy", path);
  hdf5_check(H5Tset_size(type.get(), std::max<std::size_t>(1, bytes)), "H5Tset_size", path);
  hdf5_check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "H5Tset_strpad", path);
  return type;
}

DatatypeHandle make_row_type(const Table& table, const std::string& path) {
  DatatypeHandle row(H5Tcreate(H5T_COMPOUND, table.row_bytes), "H5Tcreate", path);
  for (const auto& column : table.columns) {
    const bool is_text = column.type == ColumnType::text;
    const DatatypeHandle text = is_text ? make_text_type(column.size, path) : DatatypeHandle();
    const hid_t type = is_text ? text.get() : column.type == ColumnType::int64 ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
    hdf5_check(H5Tinsert(row.get(), column.name.c_str(), column.offset, type), "H5Tinsert", path);
  }
  return row;
}

void set_text_attribute(hid_t object, const std::string& name, const std::string& value, const std::string& path) {
  const std::string cut = value.substr(0, fitting_length(value, kMaxTextAttribute));
  const DatatypeHandle type = make_text_type(cut.size(), path);
  write_attribute(object, name, type.get(), cut.c_str(), path);
}

void set_whole_attribute(hid_t object, const std::string& name, std::int64_t value, const std::string& path) {
  write_attribute(object, name, H5T_NATIVE_INT64, &value, path);
}

std::string get_text_attribute(hid_t object, const std::string& name, const std::string& path) {
  const AttributeHandle attribute = open_attribute(object, name, path);
  if (!attribute) {
    return "";
  }
  const DatatypeHandle type(H5Aget_type(attribute.get()), "H5Aget_type", path);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0) {
    return "";
  }
  std::string value(H5Tget_size(type.get()), '\0');
  hdf5_check(H5Aread(attribute.get(), type.get(), value.data()), "H5Aread", path);
  return value.substr(0, value.find('\0'));
}

std::int64_t get_whole_attribute(hid_t object, const std::string& name, const std::string& path) {
  const AttributeHandle attribute = open_attribute(object, name, path);
  std::int64_t value = -1;
  if (attribute) {
    hdf5_check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "H5Aread", path);
  }
  return value;
}

std::int64_t num_rows(hid_t dataset, const std::string& path) {
  const DataspaceHandle space(H5Dget_space(dataset), "H5Dget_space", path);
  if (hdf5_check(H5Sget_simple_extent_ndims(space.get()), "H5Sget_simple_extent_ndims", path) != 1) {
    return -1;
  }
  hsize_t rows = 0;
  hdf5_check(H5Sget_simple_extent_dims(space.get(), &rows, nullptr), "H5Sget_simple_extent_dims", path);
  return static_cast<std::int64_t>(rows);
}

}  // namespace shardmark::record
