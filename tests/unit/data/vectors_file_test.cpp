#include "data/vectors_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/vectors_writer.hpp"

namespace shardmark::data {
namespace {

using ::testing::AllOf;
using testing::DatasetToWrite;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::VectorsToWrite;
using testing::write_vectors;

/// `rows` rows of width 3, row r holding 10r, 10r + 1, 10r + 2, with labels r % 4.
VectorsToWrite labelled(std::size_t rows) {
  VectorsToWrite content;
  content.features.shape = {rows, 3};
  content.targets = {.shape = {rows}, .values = {}, .type = H5T_NATIVE_INT64};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      content.features.values.push_back(static_cast<double>(10 * row + column));
    }
    content.targets.values.push_back(static_cast<double>(row % 4));
  }
  return content;
}

/// As `labelled`, with two real targets a row: r + 0.5 and -r.
VectorsToWrite regression(std::size_t rows) {
  VectorsToWrite content = labelled(rows);
  content.targets = {.shape = {rows, 2}, .values = {}, .type = H5T_NATIVE_FLOAT};
  for (std::size_t row = 0; row < rows; ++row) {
    content.targets.values.push_back(static_cast<double>(row) + 0.5);
    content.targets.values.push_back(-static_cast<double>(row));
  }
  return content;
}

std::string refusal(const std::string& path, const VectorsExpectation& expectation = {}) {
  try {
    const VectorsFile file(path, expectation);
  } catch (const base::DataError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
  return "was accepted";
}

std::string refusal_of(const VectorsToWrite& content, const VectorsExpectation& expectation = {}) {
  const TemporaryFolder folder;
  write_vectors(folder.file("data.h5"), content);
  return refusal(folder.file("data.h5"), expectation);
}

class BothWays : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(BothWays, ReadsRowsInAnyOrderAndFillers) {
  const TemporaryFolder folder;
  write_vectors(folder.file("data.h5"), labelled(9));
  VectorsFile file(folder.file("data.h5"), {.width = 3, .classes = 4, .keep_below_bytes = GetParam()});
  ASSERT_EQ(file.in_memory(), GetParam() > 0);
  EXPECT_EQ(file.num_rows(), 9);
  EXPECT_EQ(file.target_width(), 0);
  EXPECT_EQ(file.num_classes(), 4);
  EXPECT_EQ(file.digest(), "cafe");

  const std::vector<std::int64_t> rows{7, -1, -1, 2, 3, 4, 0, 8};
  std::vector<float> features(rows.size() * 3, -1.0F);
  std::vector<std::int64_t> labels(rows.size(), -1);
  file.read(rows, {.features = features, .targets = {}, .labels = labels});

  EXPECT_THAT(labels, ElementsAre(3, 0, 0, 2, 3, 0, 0, 0));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t column = 0; column < 3; ++column) {
      const float expected = rows[i] < 0 ? 0.0F : static_cast<float>(10 * rows[i] + static_cast<std::int64_t>(column));
      EXPECT_EQ(features[3 * i + column], expected) << "slot " << i;
    }
  }
}

TEST_P(BothWays, ReadsRealTargets) {
  const TemporaryFolder folder;
  write_vectors(folder.file("data.h5"), regression(5));
  VectorsFile file(folder.file("data.h5"), {.target_width = 2, .keep_below_bytes = GetParam()});
  EXPECT_EQ(file.num_classes(), 0);

  std::vector<float> features(6);
  std::vector<float> targets(4);
  file.read(std::vector<std::int64_t>{4, -1}, {.features = features, .targets = targets, .labels = {}});

  EXPECT_THAT(features, ElementsAre(40, 41, 42, 0, 0, 0));
  EXPECT_THAT(targets, ElementsAre(4.5F, -4, 0, 0));
}

INSTANTIATE_TEST_SUITE_P(MemoryAndDisk, BothWays, ::testing::Values(1 << 20, 0));

TEST(VectorsFile, VariableLengthTextsAreRead) {
  VectorsToWrite content = labelled(2);
  content.variable_length_text = true;
  const TemporaryFolder folder;
  write_vectors(folder.file("data.h5"), content);
  EXPECT_EQ(VectorsFile(folder.file("data.h5"), {}).digest(), "cafe");
}

TEST(VectorsFile, ALargerFileIsCheckedInPieces) {
  // 4 MiB pieces hold 209,715 rows of 20 bytes: the bad value lies in the second.
  VectorsToWrite content = labelled(300'000);
  content.features.values[3 * 250'000 + 1] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal_of(content, {.keep_below_bytes = 0}), HasSubstr("/features, row 250000, column 1 holds inf"));
}

TEST(VectorsFile, WhatIsNoDataFileIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.file("missing.h5")), AllOf(HasSubstr("No such file"), HasSubstr("prepare_data.py")));
  EXPECT_THAT(refusal(folder.path().string()), HasSubstr("a folder"));
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder.file("pipe")), HasSubstr("not a regular file"));
  testing::write_file(folder.file("text.h5"), "a,b,c\n");
  EXPECT_THAT(refusal(folder.file("text.h5")), HasSubstr("not an HDF5 file"));
  testing::write_file(folder.file("empty.h5"), "");
  EXPECT_THAT(refusal(folder.file("empty.h5")), HasSubstr("not an HDF5 file"));
}

TEST(VectorsFile, ATruncatedFileIsRefusedAtEveryLength) {
  const TemporaryFolder folder;
  const std::string path = folder.file("data.h5");
  write_vectors(path, labelled(400));
  const std::string whole = testing::read_file(path);
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    testing::write_file(path, whole.substr(0, length));
    EXPECT_NE(refusal(path), "was accepted") << "cut to " << length;
  }
}

TEST(VectorsFile, WrongAttributesAreNamed) {
  VectorsToWrite content = labelled(2);
  content.kind = "tokens";
  EXPECT_THAT(refusal_of(content), HasSubstr("kind is \"tokens\""));
  content.kind = "";
  EXPECT_THAT(refusal_of(content), HasSubstr("kind is missing"));
  content = labelled(2);
  content.schema_version = 2;
  EXPECT_THAT(refusal_of(content), HasSubstr("schema_version is 2, this program reads 1"));
  content.schema_version = -1;
  EXPECT_THAT(refusal_of(content), HasSubstr("schema_version is missing"));
}

TEST(VectorsFile, WrongShapesAndTypesAreNamedTogether) {
  VectorsToWrite content = labelled(2);
  content.features.shape = {};
  content.targets.shape = {};
  EXPECT_THAT(refusal_of(content), AllOf(HasSubstr("/features is missing"), HasSubstr("/targets is missing")));

  content = labelled(4);
  content.features.type = H5T_NATIVE_DOUBLE;
  content.targets.type = H5T_NATIVE_INT32;
  EXPECT_THAT(refusal_of(content), AllOf(HasSubstr("/features is float64 (4, 3)"), HasSubstr("/targets is int32 (4,)")));

  content = labelled(4);
  content.features.shape = {12};
  EXPECT_THAT(refusal_of(content), HasSubstr("/features is float32 (12,)"));

  content = labelled(4);
  content.targets.shape = {2};
  content.targets.values.resize(2);
  EXPECT_THAT(refusal_of(content), AllOf(HasSubstr("(2,)"), HasSubstr("/features has 4 rows")));

  content = {};
  content.features.shape = {0, 3};
  content.targets = {.shape = {0}, .values = {}, .type = H5T_NATIVE_INT64};
  EXPECT_THAT(refusal_of(content), HasSubstr("at least one row"));
}

TEST(VectorsFile, WhatTheModelCannotTakeIsNamed) {
  EXPECT_THAT(refusal_of(labelled(4), {.width = 64}), HasSubstr("3 columns, the model takes 64"));
  EXPECT_THAT(refusal_of(labelled(4), {.target_width = 1}), HasSubstr("needs float32 (rows, 1)"));
  EXPECT_THAT(refusal_of(regression(4), {.target_width = 1}), HasSubstr("float32 (4, 2)"));
  EXPECT_THAT(refusal_of(regression(4), {.classes = 10}), HasSubstr("10 classes"));
}

TEST(VectorsFile, BadValuesAreNamedByRowAndCounted) {
  VectorsToWrite content = labelled(6);
  content.features.values[3 * 4 + 2] = std::nan("");
  content.features.values[3 * 5] = -std::numeric_limits<double>::infinity();
  content.targets.values[3] = 17;
  EXPECT_THAT(refusal_of(content, {.classes = 4}),
              AllOf(HasSubstr("/features, row 4, column 2 holds nan"), HasSubstr("(1 more such values)"),
                    HasSubstr("/targets, row 3 holds label 17; labels lie in [0, 4)")));

  content = labelled(2);
  content.targets.values[1] = -1;
  EXPECT_THAT(refusal_of(content), HasSubstr("row 1 holds label -1"));

  content = regression(2);
  content.targets.values[3] = std::nan("");
  EXPECT_THAT(refusal_of(content), HasSubstr("/targets, row 1, column 1 holds nan"));
}

TEST(VectorsFile, RowsOutsideAndBuffersOfAnotherSizeAreBrokenInvariants) {
  const TemporaryFolder folder;
  write_vectors(folder.file("data.h5"), labelled(2));
  VectorsFile file(folder.file("data.h5"), {});
  std::vector<float> features(3);
  std::vector<std::int64_t> labels(1);
  const VectorRows out{.features = features, .targets = {}, .labels = labels};
  EXPECT_THROW(file.read(std::vector<std::int64_t>{2}, out), base::InvariantError);
  EXPECT_THROW(file.read(std::vector<std::int64_t>{-2}, out), base::InvariantError);
  EXPECT_THROW(file.read(std::vector<std::int64_t>{0, 1}, out), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::data
