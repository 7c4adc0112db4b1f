// What the reader gives back and the writer leaves behind.

#include "weights/safetensors.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "tests/support/temporary_folder.hpp"

namespace shardmark::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 37 + 11);
  }
  return bytes;
}

std::vector<std::byte> read_whole(const SafetensorsFile& file, const std::string& name) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.at(name).num_bytes));
  file.read_into(name, bytes);
  return bytes;
}

std::vector<std::string> names_of(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.tensors()) {
    names.push_back(tensor.name);
  }
  return names;
}

TEST(Safetensors, ReadsTheMlpFixture) {
  const SafetensorsFile file(std::string(SM_TEST_SOURCE_DIR) + "/tests/fixtures/mlp/model.safetensors");

  std::int64_t num_parameters = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    EXPECT_EQ(name_of(tensor.type), "F32") << tensor.name;
    num_parameters += tensor.num_elements();
  }
  EXPECT_EQ(num_parameters, 4929);  // 10-64-64-1
  EXPECT_THAT(file.at("net.0.weight").shape, ElementsAre(64, 10));
  EXPECT_THAT(file.at("net.6.bias").shape, ElementsAre(1));

  float largest = 0;
  std::vector<float> weight(640);
  file.read_into("net.0.weight", std::as_writable_bytes(std::span(weight)));
  for (const float value : weight) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_GT(largest, 0.1F);
  EXPECT_LT(largest, 10.0F);
}

TEST(Safetensors, EveryTypeComesBackAsWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.file("all.safetensors");
  const std::vector<ElementType> types{ElementType::f64,  ElementType::f32, ElementType::f16,
                                       ElementType::bf16, ElementType::i64, ElementType::i32,
                                       ElementType::i8,   ElementType::u8,  ElementType::boolean};
  std::vector<std::vector<std::byte>> contents;
  for (const ElementType type : types) {
    contents.push_back(counting_bytes(static_cast<std::size_t>(6 * size_of(type))));
  }
  std::vector<TensorToWrite> tensors;
  for (std::size_t i = 0; i < types.size(); ++i) {
    tensors.push_back({.name = std::string(name_of(types[i])), .type = types[i], .shape = {3, 2}, .data = contents[i]});
  }

  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "quote \" and \u00e9"}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), types.size());
  EXPECT_EQ(file.metadata().at("note"), "quote \" and \u00e9");
  for (std::size_t i = 0; i < types.size(); ++i) {
    const TensorInfo& tensor = file.at(name_of(types[i]));
    EXPECT_EQ(tensor.type, types[i]);
    EXPECT_THAT(tensor.shape, ElementsAre(3, 2));
    EXPECT_EQ(read_whole(file, tensor.name), contents[i]);
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(Safetensors, EmptyTensorsAndScalarsAreLegal) {
  const TemporaryFolder folder;
  const std::string path = folder.file("edge.safetensors");
  const auto four = counting_bytes(4);
  const std::vector<TensorToWrite> tensors{{.name = "empty", .type = ElementType::f32, .shape = {0, 3}, .data = {}},
                                           {.name = "scalar", .type = ElementType::f32, .shape = {}, .data = four},
                                           {.name = "z.empty", .type = ElementType::i64, .shape = {0}, .data = {}}};

  write_safetensors(path, tensors);

  const SafetensorsFile file(path);
  EXPECT_EQ(file.at("empty").num_elements(), 0);
  EXPECT_EQ(file.at("scalar").num_elements(), 1);
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(read_whole(file, "scalar"), four);
  EXPECT_TRUE(read_whole(file, "z.empty").empty());
}

TEST(Safetensors, AFileWithoutTensorsIsLegal) {
  const TemporaryFolder folder;
  const std::string path = folder.file("none.safetensors");
  write_safetensors(path, {});
  EXPECT_TRUE(SafetensorsFile(path).tensors().empty());
}

TEST(Safetensors, OrderIsByNameOrAsGivenAndDataStartsAtAMultipleOfEight) {
  const TemporaryFolder folder;
  const std::string path = folder.file("order.safetensors");
  const auto one = counting_bytes(1);
  for (std::size_t length = 1; length < 9; ++length) {
    const std::vector<TensorToWrite> tensors{
        {.name = std::string(length, 'b'), .type = ElementType::u8, .shape = {1}, .data = one},
        {.name = "a", .type = ElementType::u8, .shape = {1}, .data = one}};
    write_safetensors(path, tensors);
    EXPECT_THAT(names_of(SafetensorsFile(path)), ElementsAre("a", tensors[0].name));
    EXPECT_EQ(std::filesystem::file_size(path) % 8, 2U);

    write_safetensors(path, tensors, {}, TensorOrder::as_given);
    EXPECT_THAT(names_of(SafetensorsFile(path)), ElementsAre(tensors[0].name, "a"));
  }
}

TEST(Safetensors, PartsOfATensorAreReadFromWhereAsked) {
  const TemporaryFolder folder;
  const std::string path = folder.file("parts.safetensors");
  const auto data = counting_bytes(40);
  const std::vector<TensorToWrite> tensors{{.name = "a", .type = ElementType::u8, .shape = {40}, .data = data}};
  write_safetensors(path, tensors);

  const SafetensorsFile file(path);
  std::vector<std::byte> part(7);
  file.read_into(file.at("a"), part, 33);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), data.begin() + 33));
  EXPECT_THROW(file.read_into(file.at("a"), part, 34), base::InvariantError);
  EXPECT_THROW(file.read_into(file.at("a"), part, -1), base::InvariantError);
}

TEST(Safetensors, AnUnknownNameSuggestsTheClosest) {
  const SafetensorsFile file(std::string(SM_TEST_SOURCE_DIR) + "/tests/fixtures/mlp/model.safetensors");
  EXPECT_EQ(file.find("net.1.weight"), nullptr);
  try {
    static_cast<void>(file.at("net.0.weigth"));
    FAIL();
  } catch (const base::DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("net.0.weight\""));
  }
}

TEST(Safetensors, WhatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(SafetensorsFile(folder.file("missing")), SafetensorsError);
  EXPECT_THROW(SafetensorsFile(folder.path()), SafetensorsError);
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsFile(folder.file("pipe")), SafetensorsError);  // and does not wait for a writer
}

TEST(Safetensors, AFileCutWhileOpenIsAnInputError) {
  const TemporaryFolder folder;
  const std::string path = folder.file("cut.safetensors");
  const auto data = counting_bytes(4096);
  const std::vector<TensorToWrite> tensors{{.name = "a", .type = ElementType::u8, .shape = {4096}, .data = data}};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);

  std::vector<std::byte> out(4096);
  EXPECT_THROW(file.read_into("a", out), base::IoError);
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_safetensors(folder.file("no/such/folder.safetensors"), {}), base::IoError);

  // A folder in the way of the file aside, and one in the way of the name.
  const std::string path = folder.file("old.safetensors");
  write_file(path, "old");
  std::filesystem::create_directory(path + ".partial");
  EXPECT_THROW(write_safetensors(path, {}), base::IoError);
  EXPECT_EQ(read_file(path), "old");

  const std::string occupied = folder.file("occupied.safetensors");
  std::filesystem::create_directories(occupied + "/x");
  EXPECT_THROW(write_safetensors(occupied, {}), base::IoError);
  EXPECT_FALSE(std::filesystem::exists(occupied + ".partial"));
}

TEST(Safetensors, AFullDiskIsAnInputErrorWithItsReason) {
  const TemporaryFolder folder;
  const std::string path = folder.file("full.safetensors");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  try {
    write_safetensors(path, {});
    FAIL();
  } catch (const base::IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No space left"));
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_EQ(error.code(), base::ExitCode::io);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, WrongInputToTheWriterIsABrokenInvariant) {
  const TemporaryFolder folder;
  const std::string path = folder.file("wrong.safetensors");
  const auto four = counting_bytes(4);
  const TensorToWrite good{.name = "a", .type = ElementType::f32, .shape = {1}, .data = four};
  TensorToWrite wrong_size = good;
  wrong_size.shape = {2};
  TensorToWrite reserved = good;
  reserved.name = "__metadata__";

  EXPECT_THROW(write_safetensors(path, std::vector{good, good}), base::InvariantError);
  EXPECT_THROW(write_safetensors(path, std::vector{wrong_size}), base::InvariantError);
  EXPECT_THROW(write_safetensors(path, std::vector{reserved}), base::InvariantError);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, AMovedFromFileLetsGo) {
  SafetensorsFile first(std::string(SM_TEST_SOURCE_DIR) + "/tests/fixtures/mlp/model.safetensors");
  SafetensorsFile second(std::move(first));
  EXPECT_EQ(read_whole(second, "net.6.bias").size(), 4U);
  SafetensorsFile third(std::string(SM_TEST_SOURCE_DIR) + "/tests/fixtures/mlp/reference.safetensors");
  third = std::move(second);
  EXPECT_EQ(read_whole(third, "net.6.bias").size(), 4U);
}

}  // namespace
}  // namespace shardmark::weights
