// Records of an older program lack columns: those read as -1, NaN or "", whatever a row starts with in memory.

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "record/hdf5_handle.hpp"
#include "record/reader.hpp"
#include "record/schema.hpp"
#include "tests/support/record_files.hpp"

namespace shardmark::record {
namespace {

using MissingColumns = testing::RecordFiles;

/// Replaces a table by two rows that have `kept` alone: 5 in numbers, "kept" in texts.
void write_narrow_table(const std::string& file_path, const Table& table, const Column& kept) {
  const FileHandle file(H5Fopen(file_path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "H5Fopen", file_path);
  hdf5_check(H5Ldelete(file.get(), table.name.c_str(), H5P_DEFAULT), "H5Ldelete", file_path);
  const DatatypeHandle text(H5Tcopy(H5T_C_S1), "H5Tcopy", file_path);
  hdf5_check(H5Tset_size(text.get(), kept.size), "H5Tset_size", file_path);
  const hid_t member = kept.type == ColumnType::text    ? text.get()
                       : kept.type == ColumnType::int64 ? H5T_NATIVE_INT64
                                                        : H5T_NATIVE_DOUBLE;
  const DatatypeHandle row(H5Tcreate(H5T_COMPOUND, kept.size), "H5Tcreate", file_path);
  hdf5_check(H5Tinsert(row.get(), kept.name.c_str(), 0, member), "H5Tinsert", file_path);
  std::vector<char> bytes(2 * kept.size);
  const std::int64_t whole = 5;
  const double number = 5;
  for (char* at : {bytes.data(), bytes.data() + kept.size}) {
    if (kept.type == ColumnType::text) {
      std::memcpy(at, "kept", 4);
    } else {
      std::memcpy(at, kept.type == ColumnType::int64 ? static_cast<const void*>(&whole) : &number, 8);
    }
  }
  const hsize_t count = 2;
  const DataspaceHandle space(H5Screate_simple(1, &count, nullptr), "H5Screate_simple", file_path);
  const DatasetHandle dataset(
      H5Dcreate2(file.get(), table.name.c_str(), row.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Dcreate2",
      file_path);
  hdf5_check(H5Dwrite(dataset.get(), row.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), "H5Dwrite", file_path);
}

std::string shown(const Column& column, const std::byte* row) {
  const auto* at = reinterpret_cast<const char*>(row) + column.offset;
  if (column.type == ColumnType::text) {
    return '"' + std::string(at, strnlen(at, column.size)) + '"';
  }
  std::int64_t whole = 0;
  double number = 0;
  std::memcpy(column.type == ColumnType::int64 ? static_cast<void*>(&whole) : &number, at, 8);
  return column.type == ColumnType::int64 ? std::to_string(whole) : std::isnan(number) ? "nan" : std::to_string(number);
}

std::span<const std::byte> bytes_of(const Record& record, const std::string& name) {
  const auto bytes = [](const auto& rows) { return std::as_bytes(std::span(rows)); };
  return name == "config_keys"   ? bytes(record.config_keys)
         : name == "ranks"       ? bytes(record.ranks)
         : name == "environment" ? bytes(record.environment)
         : name == "steps"       ? bytes(record.steps)
         : name == "memory"      ? bytes(record.memory)
         : name == "collectives" ? bytes(record.collectives)
         : name == "evaluations" ? bytes(record.evaluations)
         : name == "checks"      ? bytes(record.checks)
         : name == "summary"     ? bytes(record.summary)
         : name == "telemetry"   ? bytes(record.telemetry)
         : name == "health"      ? bytes(record.health)
         : name == "transport"   ? bytes(record.transport)
         : name == "trace"       ? bytes(record.trace)
         : name == "trace_ranks" ? bytes(record.trace_ranks)
         : name == "comm"        ? bytes(record.comm)
                                 : std::span<const std::byte>{};
}

TEST_F(MissingColumns, ReadAsMissingInEveryTable) {
  for (const auto& table : tables()) {
    for (const Column& kept : {table.columns.front(), table.columns.back()}) {
      std::filesystem::remove(path());
      write_complete();
      write_narrow_table(path(), table, kept);
      const auto record = read_record(path());
      const auto rows = bytes_of(record, table.name);
      ASSERT_EQ(rows.size(), 2 * table.row_bytes) << table.name;
      for (const std::size_t start : {std::size_t{0}, table.row_bytes}) {
        for (const auto& column : table.columns) {
          const bool text = column.type == ColumnType::text;
          const bool whole = column.type == ColumnType::int64;
          const bool there = column.name == kept.name;
          const std::string expected = there   ? (text    ? "\"kept\""
                                                  : whole ? "5"
                                                          : "5.000000")
                                       : text  ? "\"\""
                                       : whole ? "-1"
                                               : "nan";
          EXPECT_EQ(shown(column, rows.data() + start), expected) << table.name << "." << column.name;
        }
      }
    }
  }
}

TEST_F(MissingColumns, MissingAttributesAreMissing) {
  write_complete();
  {
    const FileHandle file(H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "H5Fopen", path());
    for (const auto& attribute : attributes()) {
      if (attribute.name != "schema_version") {
        hdf5_check(H5Adelete(file.get(), attribute.name.c_str()), "H5Adelete", path());
      }
    }
  }
  const auto a = read_record(path()).attributes;
  for (const auto value : {a.definition_version, a.dirty, a.exit_code, a.world_size, a.repeat, a.attempt}) {
    EXPECT_EQ(value, -1);
  }
  for (const auto& value : {a.shardmark_version, a.commit, a.status, a.error, a.preset, a.run_id, a.job_id}) {
    EXPECT_EQ(value, "");
  }
}

TEST_F(MissingColumns, AColumnOfAnotherTypeIsRefused) {
  write_complete();
  const auto& steps_table = table("steps");
  Column wrong = *std::ranges::find(steps_table.columns, "loss", &Column::name);
  wrong.type = ColumnType::text;
  write_narrow_table(path(), steps_table, wrong);
  EXPECT_THROW(static_cast<void>(read_record(path())), base::DataError);
}

}  // namespace
}  // namespace shardmark::record
