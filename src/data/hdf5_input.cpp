#include "data/hdf5_input.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

using record::AttributeHandle;
using record::DataspaceHandle;
using record::DatatypeHandle;
using record::hdf5_check;

void check_is_readable_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const int code = errno;
    throw base::DataError(
        fmt::format("data file {}: {}; scripts/prepare_data.py makes data files, and data.path = \"\" trains on "
                    "synthetic data",
                    path, std::strerror(code)));
  }
  if (S_ISDIR(info.st_mode)) {
    throw base::DataError(fmt::format("data file {}: it is a folder; name an HDF5 file in it", path));
  }
  if (!S_ISREG(info.st_mode)) {
    throw base::DataError(fmt::format("data file {}: it is not a regular file", path));
  }
  if (access(path.c_str(), R_OK) != 0) {
    const int code = errno;
    throw base::DataError(fmt::format("data file {}: {}; make it readable for the user of the job", path, std::strerror(code)));
  }
}

/// A root attribute that is one value, opened; its handle is empty if there is none.
struct Attribute {
  AttributeHandle handle;
  DatatypeHandle type;
};

Attribute open_attribute(const DataFile& file, const std::string& name) {
  const hid_t root = file.handle.get();
  if (hdf5_check(H5Aexists(root, name.c_str()), "H5Aexists", file.path) == 0) {
    return {};
  }
  Attribute attribute{.handle = {H5Aopen(root, name.c_str(), H5P_DEFAULT), "H5Aopen", file.path}, .type = {}};
  attribute.type = {H5Aget_type(attribute.handle.get()), "H5Aget_type", file.path};
  const DataspaceHandle space(H5Aget_space(attribute.handle.get()), "H5Aget_space", file.path);
  return H5Sget_simple_extent_npoints(space.get()) == 1 ? std::move(attribute) : Attribute{};
}

std::string type_name(hid_t type) {
  const std::size_t bits = 8 * H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_FLOAT: return fmt::format("float{}", bits);
    case H5T_INTEGER: return fmt::format("{}{}", H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int", bits);
    case H5T_STRING: return "text";
    case H5T_COMPOUND: return "compound";
    case H5T_ENUM: return "enum";
    default: return "of another type";
  }
}

}  // namespace

DataFile open_data_file(const std::string& path) {
  check_is_readable_file(path);
  record::prepare_hdf5();
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    throw base::DataError(
        fmt::format("data file {}: it is not an HDF5 file; scripts/prepare_data.py converts sources into one", path));
  }
  try {
    return {.path = path, .handle = {H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen", path}};
  } catch (const record::Hdf5Error& error) {
    if (error.reason().find("lock") != std::string::npos) {
      throw base::DataError(
          fmt::format("data file {}: it cannot be locked ({}): another process writes it, or the file system "
                      "has no locks, for which HDF5_USE_FILE_LOCKING=BEST_EFFORT is meant",
                      path, error.reason()));
    }
    throw base::DataError(
        fmt::format("data file {}: HDF5 cannot open it ({}): truncated or damaged; make it again", path, error.reason()));
  }
}

std::string text_attribute(const DataFile& file, const std::string& name) {
  const Attribute attribute = open_attribute(file, name);
  if (!attribute.handle || H5Tget_class(attribute.type.get()) != H5T_STRING) {
    return "";
  }
  const DatatypeHandle memory_type(H5Tcopy(H5T_C_S1), "H5Tcopy", file.path);
  hdf5_check(H5Tset_cset(memory_type.get(), H5Tget_cset(attribute.type.get())), "H5Tset_cset", file.path);
  if (H5Tis_variable_str(attribute.type.get()) > 0) {
    char* text = nullptr;
    hdf5_check(H5Tset_size(memory_type.get(), H5T_VARIABLE), "H5Tset_size", file.path);
    hdf5_check(H5Aread(attribute.handle.get(), memory_type.get(), static_cast<void*>(&text)), "H5Aread", file.path);
    std::string result(text != nullptr ? text : "");
    hdf5_check(H5free_memory(text), "H5free_memory", file.path);
    return result;
  }
  std::string result(H5Tget_size(attribute.type.get()) + 1, '\0');
  hdf5_check(H5Tset_size(memory_type.get(), result.size()), "H5Tset_size", file.path);
  hdf5_check(H5Aread(attribute.handle.get(), memory_type.get(), result.data()), "H5Aread", file.path);
  return result.c_str();
}

std::int64_t number_attribute(const DataFile& file, const std::string& name) {
  const Attribute attribute = open_attribute(file, name);
  if (!attribute.handle || H5Tget_class(attribute.type.get()) != H5T_INTEGER) {
    return -1;
  }
  std::int64_t value = -1;
  hdf5_check(H5Aread(attribute.handle.get(), H5T_NATIVE_INT64, &value), "H5Aread", file.path);
  return value;
}

std::vector<std::string> kind_problems(const DataFile& file, const std::string& kind) {
  constexpr std::int64_t kSchemaVersion = 1;
  std::vector<std::string> problems;
  const std::string found = text_attribute(file, "kind");
  if (found != kind) {
    problems.push_back(fmt::format("data file {}: attribute kind is {}, this workload reads \"{}\"", file.path,
                                   found.empty() ? "missing" : "\"" + found + "\"", kind));
  }
  const std::int64_t version = number_attribute(file, "schema_version");
  if (version != kSchemaVersion) {
    problems.push_back(fmt::format("data file {}: attribute schema_version is {}, this program reads {}", file.path,
                                   version == -1 ? "missing or no whole number" : std::to_string(version), kSchemaVersion));
  }
  return problems;
}

Dataset open_dataset(const DataFile& file, const std::string& name) {
  Dataset dataset{.what = fmt::format("data file {}: dataset /{}", file.path, name), .handle = {}, .shape = {}, .type = {}};
  const hid_t root = file.handle.get();
  if (hdf5_check(H5Lexists(root, name.c_str(), H5P_DEFAULT), "H5Lexists", file.path) == 0) {
    return dataset;
  }
  dataset.handle = {H5Dopen2(root, name.c_str(), H5P_DEFAULT), "H5Dopen2", dataset.what};
  const DatatypeHandle type(H5Dget_type(dataset.handle.get()), "H5Dget_type", dataset.what);
  const DataspaceHandle space(H5Dget_space(dataset.handle.get()), "H5Dget_space", dataset.what);
  const int rank = hdf5_check(H5Sget_simple_extent_ndims(space.get()), "H5Sget_simple_extent_ndims", dataset.what);
  std::vector<hsize_t> shape(static_cast<std::size_t>(rank));
  hdf5_check(H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr), "H5Sget_simple_extent_dims", dataset.what);
  dataset.shape.assign(shape.begin(), shape.end());
  dataset.type = type_name(type.get());
  return dataset;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

std::size_t run_length(std::span<const std::int64_t> rows) {
  std::size_t length = 1;
  const std::int64_t step = rows[0] < 0 ? 0 : 1;
  while (length < rows.size() && rows[length] == rows[length - 1] + step) {
    ++length;
  }
  return length;
}

void read_rows(const Dataset& dataset, RowRange rows, hid_t memory_type, void* out) {
  if (rows.count == 0) {
    return;
  }
  const std::size_t rank = dataset.shape.size();
  SM_CHECK(rank == 1 || rank == 2, "rows are read of 1-D and 2-D datasets");
  const std::array<hsize_t, 2> start{static_cast<hsize_t>(rows.first), 0};
  const std::array<hsize_t, 2> count{static_cast<hsize_t>(rows.count), rank == 2 ? static_cast<hsize_t>(dataset.shape[1]) : 1};
  const std::string& what = dataset.what;
  const DataspaceHandle memory(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), "H5Screate_simple", what);
  const DataspaceHandle space(H5Dget_space(dataset.handle.get()), "H5Dget_space", what);
  hdf5_check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
             "H5Sselect_hyperslab", what);
  hdf5_check(H5Dread(dataset.handle.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, out), "H5Dread", what);
}

}  // namespace shardmark::data
