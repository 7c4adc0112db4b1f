#include "record/reader.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "record/hdf5_table.hpp"

namespace shardmark::record {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Record read() {
    open();
    Record record;
    record.path = path_;
    record.partial = path_.find(".h5.partial") != std::string::npos;
    read_attributes(record.attributes);
    record.config_toml = read_config();
    read_rows("config_keys", record.config_keys);
    read_rows("ranks", record.ranks);
    read_rows("environment", record.environment);
    read_rows("steps", record.steps);
    read_rows("memory", record.memory);
    read_rows("collectives", record.collectives);
    read_rows("checks", record.checks);
    read_rows("summary", record.summary);
    read_rows("telemetry", record.telemetry);
    read_rows("health", record.health);
    read_rows("transport", record.transport);
    return record;
  }

 private:
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
    file_ = Handle(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    if (!file_) {
      const int code = errno;
      if (code == EAGAIN || code == ENOLCK || code == 524) {
        refuse(
            fmt::format("cannot be locked ({}, errno {}): another process holds it, or its file system has no locks; then "
                        "HDF5_USE_FILE_LOCKING=BEST_EFFORT helps",
                        std::strerror(code), code));
      }
      refuse(code != 0 ? std::strerror(code) : "not a readable HDF5 file (damaged or cut short)");
    }
    const std::int64_t version = get_whole_attribute(file_.get(), "schema_version", -1);
    if (version < 0) {
      refuse("not a shardmark record: attribute schema_version is missing");
    }
    if (version > kSchemaVersion) {
      refuse(fmt::format("schema version {} is newer than the {} this program reads: use a newer shardmark", version,
                         kSchemaVersion));
    }
  }

  void read_attributes(RunAttributes& a) const {
    const hid_t root = file_.get();
    const auto text = [&](const char* name) { return get_text_attribute(root, name); };
    const auto whole = [&](const char* name) { return get_whole_attribute(root, name, -1); };
    a.schema_version = whole("schema_version");
    a.shardmark_version = text("shardmark_version");
    a.definition_version = whole("definition_version");
    a.commit = text("commit");
    a.dirty = whole("dirty");
    a.binary_hash = text("binary_hash");
    a.created = text("created");
    a.status = text("status");
    a.error = text("error");
    a.exit_code = whole("exit_code");
    a.workload = text("workload");
    a.preset = text("preset");
    a.technique = text("technique");
    a.world_size = whole("world_size");
    a.config_hash = text("config_hash");
    a.run_id = text("run_id");
    a.suite_id = text("suite_id");
    a.case_id = text("case_id");
    a.repeat = whole("repeat");
    a.job_id = text("job_id");
    a.attempt = whole("attempt");
  }

  [[nodiscard]] std::string read_config() const {
    const Handle dataset(H5Dopen2(file_.get(), "config", H5P_DEFAULT), H5Dclose);
    if (!dataset) {
      refuse("/config is missing: the run ended before it began");
    }
    const Handle type(H5Dget_type(dataset.get()), H5Tclose);
    std::string text(H5Tget_size(type.get()), '\0');
    if (H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) {
      refuse("/config is damaged");
    }
    return text;
  }

  /// Rows start as missing values; HDF5 fills the columns that the file has.
  template <typename Row>
  void read_rows(const std::string& name, std::vector<Row>& rows) const {
    if (H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) <= 0) {
      return;
    }
    const Handle dataset(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    const std::int64_t count = dataset ? num_rows(dataset.get()) : -1;
    // A damaged extent must not become a huge allocation.
    if (count < 0 || static_cast<std::uint64_t>(count) > H5Dget_storage_size(dataset.get()) / 8 + 64) {
      refuse(fmt::format("/{} is damaged", name));
    }
    rows.assign(static_cast<std::size_t>(count), Row{});
    const Handle type = make_row_type(table(name));
    if (count > 0 && H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) < 0) {
      refuse(fmt::format("/{} is damaged: its checksum does not match", name));
    }
  }

  std::string path_;
  Handle file_;
};

}  // namespace

Record read_record(const std::string& path) {
  return Reader(path).read();
}

}  // namespace shardmark::record
