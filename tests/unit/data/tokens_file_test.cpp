#include "data/tokens_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tokens_writer.hpp"

namespace shardmark::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::TokensToWrite;
using testing::write_tokens;

/// `rows` rows of four tokens, row r holding r, r + 1, r + 2, r + 3, all but the first being targets.
TokensToWrite whole_rows(std::size_t rows) {
  TokensToWrite content;
  content.input_ids.shape = content.labels.shape = {rows, 4};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < 4; ++column) {
      const auto token = static_cast<double>(row + column);
      content.input_ids.values.push_back(token);
      content.labels.values.push_back(column == 0 ? kIgnoredLabel : token);
    }
  }
  return content;
}

/// Two rows of six: segments of 3 and 2 tokens and one padding; one segment of 4 tokens and two paddings.
TokensToWrite packed_rows() {
  TokensToWrite content;
  content.input_ids.shape = content.labels.shape = content.segment_ids.shape = {2, 6};
  content.input_ids.values = {5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 0, 0};
  content.labels.values = {-100, 6, 7, -100, 9, -100, -100, -100, 3, 4, -100, -100};
  content.segment_ids.values = {1, 1, 1, 2, 2, 0, 1, 1, 1, 1, 0, 0};
  return content;
}

std::string refusal(const std::string& path, const TokensExpectation& expectation) {
  try {
    const TokensFile file(path, expectation);
  } catch (const base::DataError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
  return "was accepted";
}

std::string refusal_of(const TokensToWrite& content, const TokensExpectation& expectation = {.vocabulary = 100}) {
  const TemporaryFolder folder;
  write_tokens(folder.file("data.h5"), content);
  return refusal(folder.file("data.h5"), expectation);
}

class TokensBothWays : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(TokensBothWays, ReadsRowsInAnyOrderAndFillers) {
  const TemporaryFolder folder;
  write_tokens(folder.file("data.h5"), whole_rows(9));
  TokensFile file(folder.file("data.h5"), {.vocabulary = 12, .length = 4, .keep_below_bytes = GetParam()});
  ASSERT_EQ(file.in_memory(), GetParam() > 0);
  EXPECT_EQ(file.num_rows(), 9);
  EXPECT_EQ(file.length(), 4);
  EXPECT_FALSE(file.has_segments());
  EXPECT_EQ(file.digest(), "cafe");

  const std::vector<std::int64_t> rows{7, -1, -1, 2, 3, 4, 0, 8};
  std::vector<std::int32_t> ids(rows.size() * 4, -1);
  std::vector<std::int32_t> labels(rows.size() * 4, -1);
  file.read(rows, {.input_ids = ids, .labels = labels, .segment_ids = {}});

  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t column = 0; column < 4; ++column) {
      const auto token = static_cast<std::int32_t>(rows[i]) + static_cast<std::int32_t>(column);
      EXPECT_EQ(ids[4 * i + column], rows[i] < 0 ? 0 : token) << "slot " << i;
      EXPECT_EQ(labels[4 * i + column], rows[i] < 0 || column == 0 ? kIgnoredLabel : token) << "slot " << i;
    }
  }
}

TEST_P(TokensBothWays, CountsTargetsTokensAndVisibleKeysOfPackedRows) {
  const TemporaryFolder folder;
  write_tokens(folder.file("data.h5"), packed_rows());
  TokensFile file(folder.file("data.h5"), {.vocabulary = 10, .keep_below_bytes = GetParam()});
  ASSERT_TRUE(file.has_segments());

  EXPECT_EQ(file.counts(0).tokens, 5);
  EXPECT_EQ(file.counts(0).targets, 3);
  EXPECT_EQ(file.counts(0).visible_keys, 6 + 3);
  EXPECT_EQ(file.counts(1).tokens, 4);
  EXPECT_EQ(file.counts(1).targets, 2);
  EXPECT_EQ(file.counts(1).visible_keys, 10);
  EXPECT_EQ(file.counts(-1).tokens, 0);
  EXPECT_EQ(file.total().tokens, 9);
  EXPECT_EQ(file.total().targets, 5);
  EXPECT_EQ(file.total().visible_keys, 19);

  std::vector<std::int32_t> ids(12), labels(12), segments(12, 7);
  file.read(std::vector<std::int64_t>{-1, 0}, {.input_ids = ids, .labels = labels, .segment_ids = segments});
  EXPECT_THAT(segments, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 0));
  EXPECT_THAT(ids, ElementsAre(0, 0, 0, 0, 0, 0, 5, 6, 7, 8, 9, 0));
}

INSTANTIATE_TEST_SUITE_P(MemoryAndDisk, TokensBothWays, ::testing::Values(1 << 20, 0));

TEST(TokensFile, LengthsAloneSayWhatIsPadding) {
  TokensToWrite content = packed_rows();
  content.segment_ids.shape = {};
  content.lengths.shape = {2};
  content.lengths.values = {5, 4};
  const TemporaryFolder folder;
  write_tokens(folder.file("data.h5"), content);
  const TokensFile file(folder.file("data.h5"), {.vocabulary = 10});
  EXPECT_EQ(file.total().tokens, 9);
  EXPECT_EQ(file.counts(0).visible_keys, 15);

  content.lengths.values = {4, 4};
  EXPECT_THAT(refusal_of(content), HasSubstr("/labels, row 0, column 4 holds 9; labels of padding must be -100"));
  content.lengths.values = {0, 7};
  EXPECT_THAT(refusal_of(content), HasSubstr("/lengths, row 0 holds 0; a row has 1 to 6 tokens (1 more such values)"));
}

TEST(TokensFile, LengthsAndSegmentsMustAgree) {
  TokensToWrite content = packed_rows();
  content.lengths.shape = {2};
  content.lengths.values = {5, 4};
  EXPECT_EQ(refusal_of(content), "was accepted");
  content.lengths.values = {5, 5};
  EXPECT_THAT(refusal_of(content), HasSubstr("/lengths, row 1 holds 5, but /segment_ids has 4 positions"));
}

TEST(TokensFile, TokensAndLabelsOutsideTheVocabularyAreNamed) {
  TokensToWrite content = whole_rows(3);
  content.input_ids.values[4 * 2 + 1] = 10;
  content.input_ids.values[4 * 2 + 3] = -1;
  content.labels.values[4 * 1 + 3] = 10;
  content.labels.values[4 * 2 + 2] = -1;
  EXPECT_THAT(refusal_of(content, {.vocabulary = 10}),
              AllOf(HasSubstr("/input_ids, row 2, column 1 holds 10; tokens lie in [0, 10) (model.vocab_size) (1 more"),
                    HasSubstr("/labels, row 1, column 3 holds 10; labels are -100 or lie in [0, 10)")));
}

TEST(TokensFile, FirstLabelsAndLabelsOfPaddingMustBeIgnored) {
  TokensToWrite content = whole_rows(3);
  content.labels.values[4] = 1;
  EXPECT_THAT(refusal_of(content), HasSubstr("/labels, row 1, column 0 holds 1; the first label of a segment must be -100"));
  content = packed_rows();
  content.labels.values[3] = 8;  // first of the second segment
  EXPECT_THAT(refusal_of(content), HasSubstr("row 0, column 3 holds 8; the first label of a segment"));
  content = packed_rows();
  content.labels.values[5] = 0;
  EXPECT_THAT(refusal_of(content), HasSubstr("row 0, column 5 holds 0; labels of padding"));
}

TEST(TokensFile, SegmentsAreNumberedWithoutGapsAndEndInPadding) {
  const std::vector<std::pair<std::vector<double>, std::string>> wrong{
      {{0, 0, 0, 0, 0, 0}, "row 1, column 0 holds 0 after nothing"},
      {{2, 2, 2, 2, 0, 0}, "column 0 holds 2 after nothing"},
      {{1, 1, 1, 3, 0, 0}, "column 3 holds 3 after 1"},
      {{1, 1, 2, 1, 0, 0}, "column 3 holds 1 after 2"},
      {{1, 1, 1, 1, 0, 1}, "column 5 holds 1 after 0"},
      {{1, 1, 1, -1, 0, 0}, "column 3 holds -1 after 1"}};
  for (const auto& [segments, part] : wrong) {
    TokensToWrite content = packed_rows();
    std::copy(segments.begin(), segments.end(), content.segment_ids.values.begin() + 6);
    EXPECT_THAT(refusal_of(content), AllOf(HasSubstr("/segment_ids, row 1"), HasSubstr(part)));
  }
}

TEST(TokensFile, ALargerFileIsCheckedInPieces) {
  // 4 MiB pieces hold 131,072 rows of 32 bytes: the bad value lies in the second.
  TokensToWrite content = whole_rows(200'000);
  content.input_ids.values[4 * 150'000 + 2] = 200'003;
  EXPECT_THAT(refusal_of(content, {.vocabulary = 200'003, .keep_below_bytes = 0}),
              HasSubstr("/input_ids, row 150000, column 2 holds 200003"));
}

TEST(TokensFile, WrongShapesTypesAndAttributesAreNamed) {
  EXPECT_THAT(refusal_of({}), HasSubstr("/input_ids is missing"));
  TokensToWrite content = whole_rows(2);
  content.labels.shape = {};
  content.segment_ids.shape = {2};
  content.segment_ids.values = {1, 1};
  content.lengths.shape = {3};
  content.lengths.values = {1, 1, 1};
  EXPECT_THAT(refusal_of(content), AllOf(HasSubstr("3 problems"), HasSubstr("/labels is missing"),
                                         HasSubstr("/segment_ids is int32 (2,); int32 (2, 4) is needed"),
                                         HasSubstr("/lengths is int32 (3,); int32 (2,) is needed")));
  content = whole_rows(2);
  content.input_ids.type = H5T_NATIVE_INT64;
  EXPECT_THAT(refusal_of(content), HasSubstr("/input_ids is int64 (2, 4); int32 (rows, length)"));
  content = whole_rows(2);
  content.labels.type = H5T_NATIVE_UINT32;
  EXPECT_THAT(refusal_of(content), HasSubstr("/labels is uint32"));
  content = whole_rows(2);
  content.kind = "vectors";
  EXPECT_THAT(refusal_of(content), HasSubstr("kind is \"vectors\""));
  content = whole_rows(2);
  content.schema_version = 2;
  EXPECT_THAT(refusal_of(content), HasSubstr("schema_version is 2"));
  EXPECT_THAT(refusal_of(whole_rows(2), {.vocabulary = 100, .length = 128}),
              HasSubstr("rows of 4 tokens, the run trains on 128 (data.sequence_length)"));
}

TEST(TokensFile, AFileWithoutAnyTargetIsRefused) {
  TokensToWrite content = whole_rows(2);
  content.labels.values.assign(8, kIgnoredLabel);
  EXPECT_THAT(refusal_of(content), HasSubstr("no row has a target"));
}

TEST(TokensFile, ATruncatedFileIsRefusedAtEveryLength) {
  const TemporaryFolder folder;
  const std::string path = folder.file("data.h5");
  write_tokens(path, whole_rows(400));
  const std::string whole = testing::read_file(path);
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    testing::write_file(path, whole.substr(0, length));
    EXPECT_NE(refusal(path, {.vocabulary = 1000}), "was accepted") << "cut to " << length;
  }
}

TEST(TokensFile, RowsOutsideAndBuffersOfAnotherSizeAreBrokenInvariants) {
  const TemporaryFolder folder;
  write_tokens(folder.file("data.h5"), whole_rows(2));
  TokensFile file(folder.file("data.h5"), {.vocabulary = 100});
  std::vector<std::int32_t> ids(4), labels(4);
  const TokenRows out{.input_ids = ids, .labels = labels, .segment_ids = {}};
  EXPECT_THROW(file.read(std::vector<std::int64_t>{2}, out), base::InvariantError);
  EXPECT_THROW(file.read(std::vector<std::int64_t>{-2}, out), base::InvariantError);
  EXPECT_THROW(file.read(std::vector<std::int64_t>{0, 1}, out), base::InvariantError);
  EXPECT_THROW(file.read(std::vector<std::int64_t>{0}, {.input_ids = ids, .labels = labels, .segment_ids = ids}),
               base::InvariantError);
}

}  // namespace
}  // namespace shardmark::data
