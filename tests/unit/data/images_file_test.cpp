#include "data/images_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/vectors_writer.hpp"

namespace shardmark::data {
namespace {

using ::testing::AllOf;
using testing::DatasetToWrite;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two pictures of 1 x 2 and 2 x 1 pixels; two boxes in the first, none in the second.
struct Content {
  DatasetToWrite pixels{{12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, H5T_NATIVE_UINT8};
  std::vector<std::int64_t> places{0, 1, 2, 70, 6, 2, 1, 71};
  DatasetToWrite boxes{{2, 4}, {0, 0, 1, 1, 0.5, 0, 2, 1}, H5T_NATIVE_FLOAT};
  DatasetToWrite labels{{2}, {1, 3}, H5T_NATIVE_INT32};
  DatasetToWrite starts{{3}, {0, 2, 2}, H5T_NATIVE_INT64};
  DatasetToWrite crowds{};
};

class ImagesFileTest : public ::testing::Test {
 protected:
  std::string write(const Content& content) {
    const std::string path = (folder_.path() / "images.h5").string();
    const auto file = testing::create_data_file(path, "images", 1);
    testing::write_dataset(file.get(), "pixels", content.pixels);
    testing::write_dataset(file.get(), "boxes", content.boxes);
    testing::write_dataset(file.get(), "box_labels", content.labels);
    testing::write_dataset(file.get(), "box_start", content.starts);
    testing::write_dataset(file.get(), "box_crowd", content.crowds);
    const record::DatatypeHandle type(H5Tcreate(H5T_COMPOUND, 32), "H5Tcreate", "test file");
    std::size_t offset = 0;
    for (const char* name : {"offset", "height", "width", "id"}) {
      record::hdf5_check(H5Tinsert(type.get(), name, offset, H5T_NATIVE_INT64), "H5Tinsert", "test file");
      offset += 8;
    }
    const hsize_t count = content.places.size() / 4;
    const record::DataspaceHandle space(H5Screate_simple(1, &count, nullptr), "H5Screate", "test file");
    const record::DatasetHandle images(
        H5Dcreate2(file.get(), "images", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "H5Dcreate2",
        "test file");
    record::hdf5_check(H5Dwrite(images.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, content.places.data()), "H5Dwrite",
                       "test file");
    return path;
  }

  std::string error_of(const Content& content) {
    try {
      const ImagesFile file(write(content), {.classes = 4});
    } catch (const base::DataError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ImagesFileTest, GivesPicturesAndTheirObjects) {
  for (const std::int64_t keep : {1000, 0}) {
    const ImagesFile file(write({}), {.classes = 4, .keep_below_bytes = keep});
    EXPECT_EQ(file.in_memory(), keep > 0);
    ASSERT_EQ(file.num_rows(), 2);
    EXPECT_EQ(file.shape(1).height, 2);
    EXPECT_EQ(file.shape(1).width, 1);
    std::vector<std::uint8_t> pixels(6);
    file.read(1, pixels);
    EXPECT_THAT(pixels, ElementsAre(6, 7, 8, 9, 10, 11));
    EXPECT_THAT(file.objects(0).labels, ElementsAre(1, 3));
    EXPECT_THAT(file.objects(0).areas, ElementsAre(1, 1.5));
    EXPECT_THAT(file.objects(0).crowds, ElementsAre(0, 0));
    EXPECT_TRUE(file.objects(1).boxes.empty());
  }
}

TEST_F(ImagesFileTest, NamesEveryBadBoxAndLabel) {
  Content content;
  content.boxes.values = {0, 0, 1, 1, 1, 0, 1, 1};
  content.labels.values = {1, 4};
  EXPECT_THAT(error_of(content),
              AllOf(HasSubstr("images.h5: dataset /boxes, row 1 (image 0) holds (1, 0, 1, 1); x2 must exceed x1"),
                    HasSubstr("dataset /box_labels, row 1 (image 0) holds label 4; labels lie in [1, 4)")));
  content = {};
  content.boxes.values = {0, 0, 1, 1, 1, 0, 2.5, 1};
  EXPECT_THAT(error_of(content), HasSubstr("dataset /boxes, row 1 (image 0) holds (1, 0, 2.5, 1); its picture has 1 x 2 pixels "
                                           "(height x width): cut boxes at its border"));
  for (const auto& outside :
       std::vector<std::vector<double>>{{-0.5, 0, 1, 1}, {0, -0.5, 1, 1}, {0, 0, 1, 1.5}, {0, 0, 1e30, 1}}) {
    std::ranges::copy(outside, content.boxes.values.begin());
    EXPECT_THAT(error_of(content), HasSubstr("dataset /boxes, row 0 (image 0) holds")) << outside[0];
  }
  content.boxes.values = {0, 0, 1, 1, 0.5, 0, 2, 1};
  content.boxes.values[2] = std::nan("");
  EXPECT_THAT(error_of(content), HasSubstr("dataset /boxes, row 0 (image 0) holds (0, 0, nan, 1); only finite numbers train"));
  content = {};
  content.labels.values[0] = 0;
  EXPECT_THAT(error_of(content), HasSubstr("row 0 (image 0) holds label 0"));
}

TEST_F(ImagesFileTest, NamesAPixelThatIsNoNumber) {
  Content content;
  content.pixels.type = H5T_NATIVE_FLOAT;
  content.pixels.values[7] = std::nan("");
  EXPECT_THAT(error_of(content), HasSubstr("dataset /pixels, row 7 holds nan; uint8 values from 0 to 255 are needed"));
  content.pixels.values[7] = 0;
  EXPECT_THAT(error_of(content), HasSubstr("dataset /pixels is float32 (12,); uint8"));
}

TEST_F(ImagesFileTest, RefusesTablesThatDoNotFitTogether) {
  Content content;
  content.places[6] = 2;  // 2 x 2 pixels from byte 6 on
  EXPECT_THAT(error_of(content), HasSubstr("dataset /images, row 1 (id 71) holds 2 x 2 pixels from byte 6 on; /pixels has 12"));
  content = {};
  content.starts.values = {0, 2, 1};
  EXPECT_THAT(error_of(content), HasSubstr("dataset /box_start, row 2 holds 1; it must rise from 0"));
  content = {};
  content.labels = {{1}, {1}, H5T_NATIVE_INT32};
  EXPECT_THAT(error_of(content), HasSubstr("dataset /box_labels is int32 (1,); int32 (2) is needed"));
  content = {};
  content.starts.shape = {};
  EXPECT_THAT(error_of(content), HasSubstr("dataset /box_start is missing"));
}

}  // namespace
}  // namespace shardmark::data
