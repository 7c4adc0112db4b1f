#include "record/hdf5_table.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.hpp"

namespace shardmark::record {
namespace {

constexpr std::size_t kMaxTextAttribute = 60 * 1024;

bool remove_attribute(hid_t object, const std::string& name) {
  const htri_t there = H5Aexists(object, name.c_str());
  return there == 0 || (there > 0 && H5Adelete(object, name.c_str()) >= 0);
}

bool write_attribute(hid_t object, const std::string& name, hid_t type, const void* value) {
  if (!remove_attribute(object, name)) {
    return false;
  }
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  Handle attribute(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  return attribute && H5Awrite(attribute.get(), type, value) >= 0 && attribute.close();
}

}  // namespace

std::string describe_failure(const std::string& call, const std::string& path) {
  const int code = errno;
  struct statvfs space {};
  auto folder = std::filesystem::path(path).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  std::string free = "free space unknown";
  if (statvfs(where.c_str(), &space) == 0) {
    free = base::format_bytes(static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize)) + " free";
  }
  return fmt::format("{} failed on {}: {} ({})", call, path, code != 0 ? std::strerror(code) : "no system error given", free);
}

Handle make_text_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<std::size_t>(1, bytes));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

Handle make_row_type(const Table& table) {
  Handle row(H5Tcreate(H5T_COMPOUND, table.row_bytes), H5Tclose);
  for (const auto& column : table.columns) {
    if (column.type == ColumnType::text) {
      const Handle text = make_text_type(column.size);
      H5Tinsert(row.get(), column.name.c_str(), column.offset, text.get());
    } else {
      H5Tinsert(row.get(), column.name.c_str(), column.offset,
                column.type == ColumnType::int64 ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE);
    }
  }
  return row;
}

bool set_text_attribute(hid_t object, const std::string& name, const std::string& value) {
  const std::string cut = value.substr(0, kMaxTextAttribute);
  const Handle type = make_text_type(cut.size());
  return write_attribute(object, name, type.get(), cut.c_str());
}

bool set_whole_attribute(hid_t object, const std::string& name, std::int64_t value) {
  return write_attribute(object, name, H5T_NATIVE_INT64, &value);
}

std::string get_text_attribute(hid_t object, const std::string& name) {
  if (H5Aexists(object, name.c_str()) <= 0) {
    return "";
  }
  const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (!attribute || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0) {
    return "";
  }
  std::string value(H5Tget_size(type.get()), '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) {
    return "";
  }
  return value.substr(0, value.find('\0'));
}

std::int64_t get_whole_attribute(hid_t object, const std::string& name, std::int64_t missing) {
  if (H5Aexists(object, name.c_str()) <= 0) {
    return missing;
  }
  const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  std::int64_t value = missing;
  return attribute && H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) >= 0 ? value : missing;
}

std::int64_t num_rows(hid_t dataset) {
  const Handle space(H5Dget_space(dataset), H5Sclose);
  hsize_t rows = 0;
  if (!space || H5Sget_simple_extent_ndims(space.get()) != 1 || H5Sget_simple_extent_dims(space.get(), &rows, nullptr) < 0) {
    return -1;
  }
  return static_cast<std::int64_t>(rows);
}

}  // namespace shardmark::record
