#include "record/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/log.hpp"
#include "record/file_lock.hpp"
#include "record/hdf5_table.hpp"
#include "record/run_attributes.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;

constexpr hsize_t kChunkRows = 64;
constexpr hsize_t kTraceChunkRows = 1024;  // hundreds of thousands of rows come at once
// HDF5 writes its own pages beside the rows, and may report success on a disk that fills up underneath it: so space is
// looked at before every write.
constexpr long long kSpareBytes = 1 << 20;

}  // namespace

struct RecordWriter::State {
  WriterOptions options;
  std::string partial;
  FileLock lock;
  FileHandle file;
  struct OpenTable {
    std::string name;
    DatasetHandle dataset;
    DatatypeHandle type;
    hsize_t rows = 0;
    std::size_t row_bytes = 0;
  };
  std::map<std::string, OpenTable, std::less<>> tables;
  std::int64_t num_appends = 0;
  bool broken = false;     // an input/output error happened: HDF5 is not touched again
  bool truncated = false;  // planted: the file is cut before it is verified

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { abandon(); }

  [[noreturn]] void fail(const std::string& call, int code) const {
    throw base::IoError(describe_failure(call, partial, std::strerror(code)));
  }

  /// Every use of HDF5 passes here: after an input/output error its own clean-up may crash, so nothing is closed any more.
  template <typename Work>
  void guarded(const Work& work) {
    SM_CHECK(!broken, "the record is not open any more");
    try {
      work();
    } catch (const base::IoError&) {
      broken = true;
      throw;
    }
  }

  void abandon() noexcept {
    for (auto& [name, table] : tables) {
      if (broken) {
        table.dataset.release();
        table.type.release();
      }
    }
    if (broken) {
      file.release();
    }
    tables.clear();
    file = {};
    lock.release();
  }

  /// `what` is about to be written.
  void check_space(const std::string& what, std::size_t bytes) const {
    const long long free_bytes = free_bytes_at(partial);
    const long long needed = static_cast<long long>(bytes) + kSpareBytes;
    if (free_bytes >= 0 && free_bytes < needed) {
      throw base::IoError(describe_failure("writing " + what, partial,
                                           fmt::format("{}: {} bytes must be free", std::strerror(ENOSPC), needed)));
    }
  }

  void create_file() {
    const PropertyHandle access(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate", partial);
    // Low bound 1.8 keeps a killed run's file readable; the newest format would not.
    hdf5_check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST), "H5Pset_libver_bounds", partial);
    file = FileHandle(H5Fcreate(partial.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get()), "H5Fcreate", partial);
  }

  /// True if the file system has locks.
  bool lock_file() {
    void* driver_handle = nullptr;
    hdf5_check(H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &driver_handle), "H5Fget_vfd_handle", partial);
    const int descriptor = *static_cast<int*>(driver_handle);
    // A program started from here would keep the file open, and the lock with it.
    if (fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
      fail("fcntl", errno);
    }
    const auto result = lock.take(descriptor, partial);
    // Another start at the same moment took the new file, still without a lock, for a left-over.
    if (result == FileLock::Result::in_use || !lock.is_at(partial)) {
      refuse_in_use(options.path);
    }
    return result == FileLock::Result::held;
  }

  void create_table(const Table& table) {
    OpenTable opened;
    opened.name = table.name;
    opened.type = make_row_type(table, partial);
    opened.row_bytes = table.row_bytes;
    const hsize_t none = 0;
    const hsize_t unlimited = H5S_UNLIMITED;
    const DataspaceHandle space(H5Screate_simple(1, &none, &unlimited), "H5Screate_simple", partial);
    const PropertyHandle layout(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate", partial);
    const hsize_t chunk_rows = table.name == "trace" ? kTraceChunkRows : kChunkRows;
    hdf5_check(H5Pset_chunk(layout.get(), 1, &chunk_rows), "H5Pset_chunk", partial);
    hdf5_check(H5Pset_fletcher32(layout.get()), "H5Pset_fletcher32", partial);
    hdf5_check(H5Pset_obj_track_times(layout.get(), false), "H5Pset_obj_track_times", partial);
    opened.dataset = DatasetHandle(
        H5Dcreate2(file.get(), table.name.c_str(), opened.type.get(), space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
        "H5Dcreate2", partial);
    const hid_t dataset = opened.dataset.get();
    tables.emplace(table.name, std::move(opened));
    for (const auto& column : table.columns) {
      set_text_attribute(dataset, column.name, column.unit, partial);
    }
  }

  void append(std::string_view name, const void* rows, std::size_t count) {
    SM_CHECK(file, "the record is not open any more");
    guarded([&] { append_rows(tables.find(name)->second, rows, count); });
  }

  void append_rows(OpenTable& table, const void* rows, std::size_t count) {
    const std::int64_t index = num_appends++;
    if (options.faults != nullptr) {
      options.faults->reach(base::FaultPhase::record, index);
      if (options.faults->due(base::FaultPhase::record, index, base::FaultKind::enospc)) {
        fail("H5Dwrite", ENOSPC);
      }
      truncated = truncated || options.faults->due(base::FaultPhase::record, index, base::FaultKind::short_write).has_value();
    }
    if (count > 0) {
      check_space(fmt::format("{} rows of table /{}", count, table.name), count * table.row_bytes);
      const hsize_t start = table.rows;
      const hsize_t added = count;
      const hsize_t total = start + added;
      hdf5_check(H5Dset_extent(table.dataset.get(), &total), "H5Dset_extent", partial);
      const DataspaceHandle in_file(H5Dget_space(table.dataset.get()), "H5Dget_space", partial);
      hdf5_check(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, &start, nullptr, &added, nullptr), "H5Sselect_hyperslab",
                 partial);
      const DataspaceHandle in_memory(H5Screate_simple(1, &added, nullptr), "H5Screate_simple", partial);
      hdf5_check(H5Dwrite(table.dataset.get(), table.type.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, rows), "H5Dwrite",
                 partial);
      table.rows = total;
    }
    hdf5_check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "H5Fflush", partial);
  }

  void write_config(const std::string& toml) const {
    const DatatypeHandle type = make_text_type(toml.size(), partial);
    const DataspaceHandle space(H5Screate(H5S_SCALAR), "H5Screate", partial);
    DatasetHandle dataset(H5Dcreate2(file.get(), "config", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          "H5Dcreate2", partial);
    hdf5_check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, toml.c_str()), "H5Dwrite", partial);
    dataset.close("H5Dclose", partial);
  }

  void close() {
    for (auto& [name, table] : tables) {
      table.dataset.close("H5Dclose", partial);
    }
    file.close("H5Fclose", partial);
    lock.share();
  }

  /// Reads everything back: HDF5 compares the checksum of every chunk.
  void verify() {
    const FileHandle again(H5Fopen(partial.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen for verification", partial);
    for (auto& [name, table] : tables) {
      const DatasetHandle dataset(H5Dopen2(again.get(), name.c_str(), H5P_DEFAULT), "H5Dopen2 for verification", partial);
      const std::int64_t found = num_rows(dataset.get(), partial);
      if (found != static_cast<std::int64_t>(table.rows)) {
        throw base::IoError(
            describe_failure("verification", partial, fmt::format("/{} has {} rows instead of {}", name, found, table.rows)));
      }
      std::vector<std::byte> rows(table.rows * table.row_bytes);
      if (!rows.empty()) {
        hdf5_check(H5Dread(dataset.get(), table.type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()),
                   "H5Dread for verification", partial);
      }
    }
  }

  void give_final_name() {
    if (!lock.is_at(partial)) {
      throw base::IoError(fmt::format("{}: another file has taken this name during the run: no record is written", partial));
    }
    if (::rename(partial.c_str(), options.path.c_str()) != 0) {
      fail("rename", errno);
    }
    sync_path(folder_of(partial), O_RDONLY | O_DIRECTORY);
  }
};

RecordWriter::RecordWriter(WriterOptions options, RunAttributes attributes, const std::string& config_toml,
                           const std::vector<ConfigKeyRow>& config_keys)
    : state_(std::make_unique<State>()) {
  prepare_hdf5();
  auto& state = *state_;
  state.options = std::move(options);
  check_writable(state.options.path, state.options.overwrite);
  state.partial = partial_name(state.options.path);
  state.check_space("the record's beginning", 0);
  bool has_locks = move_left_over(state.options.path);
  attributes.status = "interrupted";
  state.guarded([&] {
    state.create_file();
    has_locks = state.lock_file() && has_locks;
    write_run_attributes(state.file.get(), attributes, state.partial);
    state.write_config(config_toml);
    for (const auto& table : tables()) {
      state.create_table(table);
    }
  });
  if (!has_locks) {
    base::log_warning(fmt::format(
        "{}: its file system has no locks ({}): a second run with this output.path would not be noticed; give every "
        "run an output.path of its own",
        state.partial, state.lock.reason()));
  }
  state.append("config_keys", config_keys.data(), config_keys.size());
}

RecordWriter::~RecordWriter() = default;

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
void RecordWriter::append_evaluations(std::span<const EvaluationRow> rows) {
  state_->append("evaluations", rows.data(), rows.size());
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
void RecordWriter::append_trace(std::span<const TraceRow> rows) {
  state_->append("trace", rows.data(), rows.size());
}
void RecordWriter::append_trace_ranks(std::span<const TraceRankRow> rows) {
  state_->append("trace_ranks", rows.data(), rows.size());
}

void RecordWriter::append_comm(std::span<const CommRow> rows) {
  state_->append("comm", rows.data(), rows.size());
}

void RecordWriter::finish(const std::string& status, const std::string& error, int exit_code) {
  auto& state = *state_;
  SM_CHECK(state.file, "the record is not open any more");
  state.guarded([&] {
    const hid_t root = state.file.get();
    state.check_space("the record's end", error.size());
    set_text_attribute(root, "status", status, state.partial);
    set_text_attribute(root, "error", error, state.partial);
    set_whole_attribute(root, "exit_code", exit_code, state.partial);
    hdf5_check(H5Fflush(root, H5F_SCOPE_GLOBAL), "H5Fflush", state.partial);
    state.close();
    if (state.truncated && ::truncate(state.partial.c_str(), static_cast<off_t>(fs::file_size(state.partial) / 2)) != 0) {
      state.fail("truncate", errno);
    }
    state.verify();
    sync_path(state.partial, O_RDONLY);
    state.give_final_name();
  });
  state.lock.release();
}

void RecordWriter::abandon() noexcept {
  state_->abandon();
}

const std::string& RecordWriter::path() const {
  return state_->options.path;
}

}  // namespace shardmark::record
