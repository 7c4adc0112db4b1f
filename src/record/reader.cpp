#include "record/reader.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "base/error.hpp"
#include "record/hdf5_table.hpp"
#include "record/run_attributes.hpp"

namespace shardmark::record {
namespace {

/// A row whose every column is missing. What a row starts with in memory may be 0, which would be a measurement.
template <typename Row>
Row missing_row(const Table& table) {
  static_assert(std::is_trivially_copyable_v<Row>);
  Row row;
  auto* bytes = reinterpret_cast<char*>(&row);
  const std::int64_t no_number = -1;
  for (const auto& column : table.columns) {
    switch (column.type) {
      case ColumnType::int64: std::memcpy(bytes + column.offset, &no_number, sizeof no_number); break;
      case ColumnType::float64: std::memcpy(bytes + column.offset, &kMissing, sizeof kMissing); break;
      case ColumnType::text: std::memset(bytes + column.offset, 0, column.size); break;
    }
  }
  return row;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Record read() {
    try {
      return read_whole();
    } catch (const Hdf5Error& error) {
      refuse(fmt::format("damaged or cut short: {} failed: {}", error.call(), error.reason()));
    }
  }

 private:
  Record read_whole() {
    open();
    Record record;
    record.path = path_;
    record.partial = path_.find(".h5.partial") != std::string::npos;
    record.attributes = read_run_attributes(file_.get(), path_);
    record.config_toml = read_config();
    read_rows("config_keys", record.config_keys);
    read_rows("ranks", record.ranks);
    read_rows("environment", record.environment);
    read_rows("steps", record.steps);
    read_rows("memory", record.memory);
    read_rows("collectives", record.collectives);
    read_rows("evaluations", record.evaluations);
    read_rows("checks", record.checks);
    read_rows("summary", record.summary);
    read_rows("telemetry", record.telemetry);
    read_rows("health", record.health);
    read_rows("transport", record.transport);
    read_rows("trace", record.trace);
    read_rows("trace_ranks", record.trace_ranks);
    read_rows("comm", record.comm);
    return record;
  }

  [[noreturn]] void refuse(const std::string& why) const { throw base::DataError(fmt::format("record {}: {}", path_, why)); }

  void open() {
    prepare_hdf5();
    namespace fs = std::filesystem;
    if (!fs::exists(path_) && fs::exists(path_ + ".partial")) {
      path_ += ".partial";
    }
    if (!fs::exists(path_)) {
      refuse("no such file");
    }
    if (fs::is_directory(path_)) {
      refuse("is a folder");
    }
    errno = 0;
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) {
      const int code = errno;
      if (code == EAGAIN || code == ENOLCK || code == 524) {
        refuse(
            fmt::format("cannot be locked ({}, errno {}): a run in progress holds it, or its file system has no locks; "
                        "HDF5_USE_FILE_LOCKING=FALSE reads it all the same",
                        std::strerror(code), code));
      }
      refuse(code != 0 ? std::strerror(code) : "not a readable HDF5 file (damaged or cut short)");
    }
    file_ = FileHandle(file, "H5Fopen", path_);
    if (H5Aexists(file_.get(), "kind") > 0) {  // what is damaged is found below
      refuse("is a data file, not the record of a run");
    }
    const std::int64_t version = get_whole_attribute(file_.get(), "schema_version", path_);
    if (version < 0) {
      refuse("not a shardmark record: attribute schema_version is missing");
    }
    if (version > kSchemaVersion) {
      refuse(fmt::format("schema version {} is newer than the {} this program reads: use a newer shardmark", version,
                         kSchemaVersion));
    }
  }

  [[nodiscard]] DatasetHandle open_dataset(const std::string& name) const {
    if (hdf5_check(H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT), "H5Lexists", path_) == 0) {
      return {};
    }
    return {H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), "H5Dopen2", path_};
  }

  [[nodiscard]] std::string read_config() const {
    const DatasetHandle dataset = open_dataset("config");
    if (!dataset) {
      refuse("/config is missing: the run ended before it began");
    }
    const DatatypeHandle type(H5Dget_type(dataset.get()), "H5Dget_type", path_);
    std::string text(H5Tget_size(type.get()), '\0');
    if (H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) {
      refuse("/config is damaged");
    }
    return text;
  }

  /// What the file lacks is missing: -1, NaN, "". HDF5 fills only the columns that the file has.
  template <typename Row>
  void read_rows(const std::string& name, std::vector<Row>& rows) const {
    const DatasetHandle dataset = open_dataset(name);
    if (!dataset) {
      return;
    }
    const std::int64_t count = num_rows(dataset.get(), path_);
    // A damaged extent must not become a huge allocation.
    if (count < 0 || static_cast<std::uint64_t>(count) > H5Dget_storage_size(dataset.get()) / 8 + 64) {
      refuse(fmt::format("/{} is damaged", name));
    }
    rows.assign(static_cast<std::size_t>(count), missing_row<Row>(table(name)));
    const DatatypeHandle type = make_row_type(table(name), path_);
    if (count > 0 && H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) < 0) {
      const Hdf5Error error("H5Dread", path_);
      refuse(fmt::format("/{} is damaged, or a column has another type: {}", name, error.reason()));
    }
  }

  std::string path_;
  FileHandle file_;
};

}  // namespace

Record read_record(const std::string& path) {
  return Reader(path).read();
}

}  // namespace shardmark::record
