#include "record/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "record/hdf5_table.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;

constexpr hsize_t kChunkRows = 64;
// HDF5 writes its own pages beside the rows, and may report success on a disk that fills up underneath it: so space is
// looked at before every write.
constexpr std::uint64_t kSpareBytes = 1 << 20;
constexpr const char* kSuffix = ".partial";

std::string folder_of(const std::string& path) {
  const auto folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string free_name(const std::string& partial) {
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}.{}", partial, number);
    if (!fs::exists(name)) {
      return name;
    }
  }
}

void sync_path(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) {
    throw base::IoError(describe_failure("open", path));
  }
  const bool good = ::fsync(descriptor) == 0;
  ::close(descriptor);
  if (!good) {
    throw base::IoError(describe_failure("fsync", path));
  }
}

}  // namespace

void check_writable(const std::string& path, bool overwrite) {
  if (fs::is_directory(path)) {
    throw base::ConfigError(fmt::format("output.path = \"{}\" is a folder: give a file name that ends in .h5", path));
  }
  if (fs::exists(path) && !overwrite) {
    throw base::ConfigError(
        fmt::format("output.path = \"{}\" exists: choose another name, or set output.overwrite = true", path));
  }
  const std::string folder = folder_of(path);
  if (!fs::is_directory(folder)) {
    throw base::ConfigError(fmt::format("output.path = \"{}\": the folder {} does not exist: make it first", path, folder));
  }
  // Permission bits say little (root passes them, read-only mounts do not): try.
  const std::string probe = fmt::format("{}/.shardmark-probe-{}", folder, ::getpid());
  errno = 0;
  const int descriptor = ::open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    throw base::IoError(fmt::format("cannot write in {}: {}", folder, std::strerror(errno)));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

struct RecordWriter::State {
  WriterOptions options;
  std::string partial;
  Handle file;
  struct OpenTable {
    Handle dataset;
    Handle type;
    hsize_t rows = 0;
    std::size_t row_bytes = 0;
  };
  std::map<std::string, OpenTable, std::less<>> tables;
  std::int64_t num_appends = 0;
  bool broken = false;     // an input/output error happened: HDF5 is not touched again
  bool truncated = false;  // planted: the file is cut before it is verified

  [[noreturn]] void fail(const std::string& call) {
    broken = true;
    throw base::IoError(describe_failure(call, partial));
  }
  void demand(bool good, const char* call) {
    if (!good) {
      fail(call);
    }
  }

  void check_space(std::size_t bytes) {
    struct statvfs space {};
    if (statvfs(folder_of(partial).c_str(), &space) == 0 &&
        static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize < bytes + kSpareBytes) {
      errno = ENOSPC;
      fail(fmt::format("writing {}", base::format_bytes(static_cast<double>(bytes))));
    }
  }

  void create_table(const Table& table) {
    OpenTable opened;
    opened.type = make_row_type(table);
    opened.row_bytes = table.row_bytes;
    const hsize_t none = 0;
    const hsize_t unlimited = H5S_UNLIMITED;
    const Handle space(H5Screate_simple(1, &none, &unlimited), H5Sclose);
    const Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    demand(H5Pset_chunk(layout.get(), 1, &kChunkRows) >= 0, "H5Pset_chunk");
    demand(H5Pset_fletcher32(layout.get()) >= 0, "H5Pset_fletcher32");
    demand(H5Pset_obj_track_times(layout.get(), false) >= 0, "H5Pset_obj_track_times");
    opened.dataset = Handle(
        H5Dcreate2(file.get(), table.name.c_str(), opened.type.get(), space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
        H5Dclose);
    demand(static_cast<bool>(opened.dataset), "H5Dcreate");
    for (const auto& column : table.columns) {
      demand(set_text_attribute(opened.dataset.get(), column.name, column.unit), "H5Awrite");
    }
    tables.emplace(table.name, std::move(opened));
  }

  void append(std::string_view name, const void* rows, std::size_t count) {
    SM_CHECK(!broken && file, "the record is not open any more");
    auto& table = tables.find(name)->second;
    const std::int64_t index = num_appends++;
    if (options.faults != nullptr) {
      options.faults->reach(base::FaultPhase::record, index);
      if (options.faults->due(base::FaultPhase::record, index, base::FaultKind::enospc)) {
        errno = ENOSPC;
        fail("H5Dwrite");
      }
      truncated = truncated || options.faults->due(base::FaultPhase::record, index, base::FaultKind::short_write).has_value();
    }
    if (count > 0) {
      check_space(count * table.row_bytes);
      errno = 0;
      const hsize_t start = table.rows;
      const hsize_t added = count;
      const hsize_t total = start + added;
      demand(H5Dset_extent(table.dataset.get(), &total) >= 0, "H5Dset_extent");
      const Handle in_file(H5Dget_space(table.dataset.get()), H5Sclose);
      demand(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, &start, nullptr, &added, nullptr) >= 0, "H5Sselect_hyperslab");
      const Handle in_memory(H5Screate_simple(1, &added, nullptr), H5Sclose);
      demand(H5Dwrite(table.dataset.get(), table.type.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, rows) >= 0,
             "H5Dwrite");
      table.rows = total;
    }
    demand(H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0, "H5Fflush");
  }

  void write_attributes(const RunAttributes& a) {
    const hid_t root = file.get();
    const auto text = [&](const char* name, const std::string& value) {
      demand(set_text_attribute(root, name, value), "H5Awrite");
    };
    const auto whole = [&](const char* name, std::int64_t value) {
      demand(set_whole_attribute(root, name, value), "H5Awrite");
    };
    whole("schema_version", a.schema_version);
    text("shardmark_version", a.shardmark_version);
    whole("definition_version", a.definition_version);
    text("commit", a.commit);
    whole("dirty", a.dirty);
    text("binary_hash", a.binary_hash);
    text("created", a.created);
    text("status", a.status);
    text("error", a.error);
    whole("exit_code", a.exit_code);
    text("workload", a.workload);
    text("preset", a.preset);
    text("technique", a.technique);
    whole("world_size", a.world_size);
    text("config_hash", a.config_hash);
    text("run_id", a.run_id);
    text("suite_id", a.suite_id);
    text("case_id", a.case_id);
    whole("repeat", a.repeat);
    text("job_id", a.job_id);
    whole("attempt", a.attempt);
  }

  void write_config(const std::string& toml) {
    const Handle type = make_text_type(toml.size());
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    Handle dataset(H5Dcreate2(file.get(), "config", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
    demand(dataset && H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, toml.c_str()) >= 0 && dataset.close(),
           "writing /config");
  }

  void close() {
    for (auto& [name, table] : tables) {
      demand(table.dataset.close(), "H5Dclose");
    }
    demand(file.close(), "H5Fclose");
  }

  /// Reads everything back: HDF5 compares the checksum of every chunk.
  void verify() {
    const Handle again(H5Fopen(partial.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    demand(static_cast<bool>(again), "opening for verification");
    for (auto& [name, table] : tables) {
      const Handle dataset(H5Dopen2(again.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
      demand(dataset && num_rows(dataset.get()) == static_cast<std::int64_t>(table.rows), "counting rows for verification");
      std::vector<std::byte> rows(table.rows * table.row_bytes);
      demand(rows.empty() || H5Dread(dataset.get(), table.type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) >= 0,
             "reading back for verification");
    }
  }
};

RecordWriter::RecordWriter(WriterOptions options, RunAttributes attributes, const std::string& config_toml,
                           const std::vector<ConfigKeyRow>& config_keys)
    : state_(std::make_unique<State>()) {
  prepare_hdf5();
  auto& state = *state_;
  state.options = std::move(options);
  check_writable(state.options.path, state.options.overwrite);
  state.partial = state.options.path + kSuffix;
  state.check_space(0);
  if (fs::exists(state.partial)) {
    fs::rename(state.partial, free_name(state.partial));
  }
  errno = 0;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Low bound 1.8 keeps a killed run's file readable; the newest format would not.
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  state.file = Handle(H5Fcreate(state.partial.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get()), H5Fclose);
  state.demand(static_cast<bool>(state.file), "H5Fcreate");
  attributes.status = "interrupted";
  state.write_attributes(attributes);
  state.write_config(config_toml);
  for (const auto& table : tables()) {
    state.create_table(table);
  }
  state.append("config_keys", config_keys.data(), config_keys.size());
}

RecordWriter::~RecordWriter() {
  abandon();
}

void RecordWriter::append_ranks(std::span<const RankRow> rows) {
  state_->append("ranks", rows.data(), rows.size());
}
void RecordWriter::append_environment(std::span<const EnvironmentRow> rows) {
  state_->append("environment", rows.data(), rows.size());
}
void RecordWriter::append_steps(std::span<const StepRow> rows) {
  state_->append("steps", rows.data(), rows.size());
}
void RecordWriter::append_memory(std::span<const MemoryRow> rows) {
  state_->append("memory", rows.data(), rows.size());
}
void RecordWriter::append_collectives(std::span<const CollectiveRow> rows) {
  state_->append("collectives", rows.data(), rows.size());
}
void RecordWriter::append_checks(std::span<const CheckRow> rows) {
  state_->append("checks", rows.data(), rows.size());
}
void RecordWriter::append_summary(const SummaryRow& row) {
  state_->append("summary", &row, 1);
}
void RecordWriter::append_telemetry(std::span<const TelemetryRow> rows) {
  state_->append("telemetry", rows.data(), rows.size());
}
void RecordWriter::append_health(std::span<const HealthRow> rows) {
  state_->append("health", rows.data(), rows.size());
}
void RecordWriter::append_transport(std::span<const TransportRow> rows) {
  state_->append("transport", rows.data(), rows.size());
}

void RecordWriter::finish(const std::string& status, const std::string& error, int exit_code) {
  auto& state = *state_;
  SM_CHECK(!state.broken && state.file, "the record is not open any more");
  errno = 0;
  const hid_t root = state.file.get();
  state.check_space(error.size());
  state.demand(set_text_attribute(root, "status", status) && set_text_attribute(root, "error", error) &&
                   set_whole_attribute(root, "exit_code", exit_code),
               "H5Awrite");
  state.demand(H5Fflush(root, H5F_SCOPE_GLOBAL) >= 0, "H5Fflush");
  state.close();
  if (state.truncated) {
    state.demand(::truncate(state.partial.c_str(), static_cast<off_t>(fs::file_size(state.partial) / 2)) == 0, "truncate");
  }
  state.verify();
  sync_path(state.partial, O_RDONLY);
  errno = 0;
  state.demand(::rename(state.partial.c_str(), state.options.path.c_str()) == 0, "rename");
  sync_path(folder_of(state.partial), O_RDONLY | O_DIRECTORY);
}

void RecordWriter::abandon() noexcept {
  auto& state = *state_;
  for (auto& [name, table] : state.tables) {
    state.broken ? table.dataset.leak() : table.dataset.reset();
  }
  state.broken ? state.file.leak() : state.file.reset();
}

const std::string& RecordWriter::path() const {
  return state_->options.path;
}

}  // namespace shardmark::record
