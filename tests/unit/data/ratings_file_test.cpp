#include "data/ratings_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "tests/support/ratings_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RatingsToWrite;
using testing::some_ratings;
using testing::TemporaryFolder;
using testing::write_ratings;

struct Read {
  std::vector<std::int64_t> users, items;
  std::vector<float> labels;
};
Read read(RatingSource& source, const std::vector<std::int64_t>& rows) {
  Read all{std::vector<std::int64_t>(rows.size(), 9), std::vector<std::int64_t>(rows.size(), 9),
           std::vector<float>(rows.size(), 9)};
  source.read(rows, {all.users, all.items, all.labels});
  return all;
}

class RatingsFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("ratings.h5"); }
  /// What a file made wrong by `spoil` is refused with.
  std::string refusal(const std::function<void(RatingsToWrite&)>& spoil, std::int64_t users = 0) {
    auto content = some_ratings(12);
    spoil(content);
    write_ratings(path(), content);
    return refusal_of_file(users);
  }
  std::string refusal_of_file(std::int64_t users = 0) {
    try {
      const RatingsFile file(path(), {.users = users});
    } catch (const base::DataError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr(path()));
      return error.what();
    }
    return "was accepted";
  }
  TemporaryFolder folder_;
};

TEST_F(RatingsFiles, GiveRowsInAnyOrderFromMemoryAndFromTheFile) {
  write_ratings(path(), some_ratings(12));
  for (const std::int64_t keep : {std::int64_t{1} << 20, std::int64_t{0}}) {
    RatingsFile file(path(), {.keep_below_bytes = keep});
    EXPECT_EQ(file.num_rows(), 12);
    EXPECT_EQ(file.num_users(), 5);
    EXPECT_EQ(file.num_items(), 12);
    EXPECT_EQ(file.describe(), path());
    const auto rows = read(file, {7, 8, -1, 3, 0});
    EXPECT_THAT(rows.users, ElementsAre(2, 3, 0, 3, 0));
    EXPECT_THAT(rows.items, ElementsAre(107, 108, 0, 103, 100));
    EXPECT_THAT(rows.labels, ElementsAre(1, 0, 0, 1, 0));
  }
}

TEST_F(RatingsFiles, AnIdOutsideItsTableIsNamedWithItsRow) {
  EXPECT_THAT(refusal([](auto& content) { content.user.values[7] = 5; }),
              AllOf(HasSubstr("/user"), HasSubstr("row 7 holds user 5"), HasSubstr("[0, 5) (attribute num_users)")));
  EXPECT_THAT(refusal([](auto& content) { content.user.values[3] = content.user.values[9] = -1; }),
              AllOf(HasSubstr("row 3 holds user -1"), HasSubstr("1 more such")));
  EXPECT_THAT(refusal([](auto&) {}, 4), AllOf(HasSubstr("row 4 holds user 4"), HasSubstr("(model.users)")));
  EXPECT_THAT(refusal([](auto& content) { content.item.values[2] = -8; }), HasSubstr("row 2 holds item -8"));
  EXPECT_EQ(refusal([](auto& content) { content.item.values[2] = 1e12; }), "was accepted") << "items are taken modulo";
}

TEST_F(RatingsFiles, ALabelThatIsNoShareIsNamedWithItsRow) {
  EXPECT_THAT(refusal([](auto& content) { content.label.values[11] = std::numeric_limits<double>::quiet_NaN(); }),
              AllOf(HasSubstr("/label"), HasSubstr("row 11 holds label nan")));
  EXPECT_THAT(refusal([](auto& content) { content.label.values[0] = std::numeric_limits<double>::infinity(); }),
              HasSubstr("row 0 holds label inf"));
  EXPECT_THAT(refusal([](auto& content) { content.label.values[5] = 3; }), HasSubstr("row 5 holds label 3"));
}

TEST_F(RatingsFiles, ShapesTypesAndAttributesAreChecked) {
  EXPECT_THAT(refusal([](auto& content) { content.kind = "vectors"; }), HasSubstr("ratings"));
  EXPECT_THAT(refusal([](auto& content) { content.label.shape = {}; }), HasSubstr("/label is missing"));
  EXPECT_THAT(refusal([](auto& content) { content.item.type = H5T_NATIVE_INT32; }),
              AllOf(HasSubstr("/item is int32 (12,)"), HasSubstr("int64 (rows,)")));
  EXPECT_THAT(refusal([](auto& content) { content.label.shape = {11}; }), HasSubstr("/label has 11 rows, but /user has 12"));
  EXPECT_THAT(refusal([](auto& content) { content.num_users = 0, content.num_items = -1; }),
              AllOf(HasSubstr("2 problems"), HasSubstr("num_users"), HasSubstr("num_items")));
}

TEST_F(RatingsFiles, ATruncatedFileIsRefused) {
  write_ratings(path(), some_ratings(4000));
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 8000);
  EXPECT_THAT(refusal_of_file(), HasSubstr("truncated"));
}

}  // namespace
}  // namespace shardmark::data
