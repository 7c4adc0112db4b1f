// Schema, writer and reader of records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/error.hpp"
#include "record/hdf5_handle.hpp"
#include "record/hdf5_table.hpp"
#include "record/reader.hpp"
#include "record/schema.hpp"
#include "record/writer.hpp"
#include "tests/support/record_files.hpp"
#include "tests/support/vectors_writer.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;

using Records = testing::RecordFiles;

TEST(Schema, DescribesEveryByteOfEveryRow) {
  for (const auto& table : tables()) {
    std::size_t at = 0;
    std::set<std::string> names;
    for (const auto& column : table.columns) {
      EXPECT_EQ(column.offset, at) << table.name << "." << column.name << ": a member before it is not described";
      at = column.offset + column.size;
      EXPECT_TRUE(names.insert(column.name).second);
      EXPECT_FALSE(column.definition.empty() || column.source.empty()) << column.name;
      EXPECT_EQ(column.unit.empty(), column.type == ColumnType::text) << column.name;
    }
    EXPECT_EQ(at, table.row_bytes) << table.name;
  }
}

TEST_F(Records, RoundTrip) {
  auto writer = open();
  writer.append_steps(steps(100));
  writer.append_steps(steps(31));
  SummaryRow summary;
  summary.loss_final = 0.25;
  summary.quality_name = "accuracy";
  writer.append_summary(summary);
  EXPECT_FALSE(fs::exists(path())) << "a final name for an unfinished record";
  writer.finish("complete", "", 0);
  const auto record = read_record(path());
  EXPECT_FALSE(record.partial);
  EXPECT_EQ(record.attributes.status, "complete");
  EXPECT_EQ(record.attributes.world_size, 3);
  EXPECT_EQ(record.config_toml, "[model]\n");
  ASSERT_EQ(record.steps.size(), 131U);
  EXPECT_EQ(record.steps[99].loss, 0.01);
  EXPECT_EQ(record.summary.at(0).quality_name.str(), "accuracy");
  EXPECT_TRUE(std::isnan(record.summary.at(0).samples_per_s));
  EXPECT_EQ(record.config_keys.at(0).origin.str(), "preset mlp");
  EXPECT_FALSE(fs::exists(path() + ".partial"));
}

TEST_F(Records, UnfinishedIsReadAsInterrupted) {
  {
    auto writer = open();
    writer.append_steps(steps(5));
  }
  const auto record = read_record(path());
  EXPECT_TRUE(record.partial);
  EXPECT_EQ(record.attributes.status, "interrupted");
  EXPECT_EQ(record.steps.size(), 5U);
  { auto writer = open(); }
  EXPECT_TRUE(fs::exists(path() + ".partial.1")) << "what an earlier run left is kept";
  EXPECT_EQ(read_record(path() + ".partial.1").steps.size(), 5U);
}

TEST_F(Records, RefusesToOverwrite) {
  open().finish("complete", "", 0);
  EXPECT_THROW(open(), base::ConfigError);
  EXPECT_NO_THROW(open(true).finish("complete", "", 0));
  EXPECT_THROW(check_writable(folder_.path(), true), base::ConfigError);
  EXPECT_THROW(check_writable(folder_.file("none/x.h5"), true), base::ConfigError);
}

TEST_F(Records, EveryTruncationIsRefusedOrWhole) {
  {
    auto writer = open();
    writer.append_steps(steps(200));
    writer.finish("complete", "", 0);
  }
  const auto size = fs::file_size(path());
  const std::string cut = folder_.file("cut.h5");
  for (std::uintmax_t length = 0; length < size; length += 509) {
    fs::copy_file(path(), cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut, length);
    EXPECT_THROW(static_cast<void>(read_record(cut)), base::DataError) << length;
  }
}

TEST_F(Records, RefusesWhatIsNoRecord) {
  EXPECT_THROW(static_cast<void>(read_record(folder_.file("none.h5"))), base::DataError);
  EXPECT_THROW(static_cast<void>(read_record(folder_.path())), base::DataError);
  std::ofstream(folder_.file("text.h5")) << "no HDF5";
  EXPECT_THROW(static_cast<void>(read_record(folder_.file("text.h5"))), base::DataError);
}

TEST_F(Records, ADataFileIsCalledOne) {
  testing::write_vectors(path(), {.features = {{1, 1}, {0.5}}, .targets = {{1}, {1}}, .variable_length_text = true});
  EXPECT_THAT(
      [&] { static_cast<void>(read_record(path())); },
      ::testing::ThrowsMessage<base::DataError>(::testing::HasSubstr("run.h5: is a data file, not the record of a run")));
}

TEST_F(Records, RefusesANewerSchema) {
  write_complete();
  {
    const FileHandle file(H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "H5Fopen", path());
    const AttributeHandle version(H5Aopen(file.get(), "schema_version", H5P_DEFAULT), "H5Aopen", path());
    const std::int64_t newer = RunAttributes{}.schema_version + 1;
    hdf5_check(H5Awrite(version.get(), H5T_NATIVE_INT64, &newer), "H5Awrite", path());
  }
  EXPECT_THAT([&] { static_cast<void>(read_record(path())); },
              ::testing::ThrowsMessage<base::DataError>(
                  ::testing::AllOf(::testing::HasSubstr(path()), ::testing::HasSubstr("schema version 2 is newer than the 1"),
                                   ::testing::HasSubstr("use a newer shardmark"))));
}

TEST_F(Records, EveryNumberInTheFileHasItsUnitBesideIt) {
  write_complete();
  const FileHandle file(H5Fopen(path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen", path());
  std::size_t num_numbers = 0;
  for (const auto& table : tables()) {
    const DatasetHandle dataset(H5Dopen2(file.get(), table.name.c_str(), H5P_DEFAULT), "H5Dopen2", path());
    const DatatypeHandle row(H5Dget_type(dataset.get()), "H5Dget_type", path());
    const int num_members = hdf5_check(H5Tget_nmembers(row.get()), "H5Tget_nmembers", path());
    EXPECT_EQ(static_cast<std::size_t>(num_members), table.columns.size()) << table.name;
    for (unsigned i = 0; i < static_cast<unsigned>(num_members); ++i) {
      char* found = H5Tget_member_name(row.get(), i);
      const std::string name = found;
      H5free_memory(found);
      const bool is_text = H5Tget_member_class(row.get(), i) == H5T_STRING;
      const DatatypeHandle member(H5Tget_member_type(row.get(), i), "H5Tget_member_type", path());
      EXPECT_TRUE(is_text ? H5Tis_variable_str(member.get()) == 0 : H5Tget_size(member.get()) == 8)
          << table.name << "." << name << ": texts are fixed, numbers 8 bytes";
      if (!is_text) {
        EXPECT_NE(get_text_attribute(dataset.get(), name, path()), "") << table.name << "." << name;
        ++num_numbers;
      }
    }
  }
  EXPECT_GT(num_numbers, 60U);
}

}  // namespace
}  // namespace shardmark::record
