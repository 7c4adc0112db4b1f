// Schema, writer and reader of records.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "record/reader.hpp"
#include "record/schema.hpp"
#include "record/writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;

class Records : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("run.h5"); }
  [[nodiscard]] RecordWriter open(bool overwrite = false) const {
    RunAttributes attributes;
    attributes.preset = "mlp";
    attributes.world_size = 3;
    return {{path(), overwrite, nullptr}, attributes, "[model]\n", {{"model.width", "64", "preset mlp"}}};
  }
  static std::vector<StepRow> steps(std::int64_t count) {
    std::vector<StepRow> rows(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      rows[static_cast<std::size_t>(i)].step = i;
      rows[static_cast<std::size_t>(i)].loss = 1.0 / static_cast<double>(i + 1);
    }
    return rows;
  }

  testing::TemporaryFolder folder_;
};

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

}  // namespace
}  // namespace shardmark::record
