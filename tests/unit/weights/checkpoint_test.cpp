// Folders of one file or of several with an index, and what is refused of them.

#include "weights/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/temporary_folder.hpp"

namespace shardmark::weights {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_file;

class Folder : public TemporaryFolder {
 public:
  void write(const std::string& file, const std::vector<std::string>& tensors) const {
    std::vector<TensorToWrite> list;
    for (const auto& name : tensors) {
      list.push_back({name, ElementType::f32, {2}, std::as_bytes(std::span(values_))});
    }
    write_safetensors(path() / file, list);
  }
  void write_index(const std::string& map) const {
    write_file(path() / "model.safetensors.index.json", R"({"metadata": {"total_size": 16}, "weight_map": )" + map + "}");
  }
  [[nodiscard]] std::string problem() const {
    try {
      Checkpoint checkpoint(path());
    } catch (const base::DataError& error) {
      return error.what();
    }
    return "none";
  }

 private:
  std::array<float, 2> values_{1, 2};
};

TEST(Checkpoint, OneFile) {
  Folder folder;
  folder.write("model.safetensors", {"a", "b"});
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 2);
  EXPECT_EQ(checkpoint.num_bytes(), 16);
  std::array<float, 1> second{};
  checkpoint.find("b")->file->read_into(*checkpoint.find("b")->info, std::as_writable_bytes(std::span(second)), 4);
  EXPECT_EQ(second[0], 2);
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST(Checkpoint, SeveralFilesByTheirIndex) {
  Folder folder;
  folder.write("one.safetensors", {"a"});
  folder.write("two.safetensors", {"b", "c"});
  folder.write_index(R"({"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"})");
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 3);
  EXPECT_THAT(checkpoint.find("c")->file->path(), HasSubstr("two.safetensors"));
  EXPECT_THAT(checkpoint.path(), HasSubstr("index.json"));
}

TEST(Checkpoint, WhatIsWrongIsNamed) {
  const Folder empty;
  EXPECT_THAT(empty.problem(), AllOf(HasSubstr("neither"), HasSubstr("index.json")));

  Folder folder;
  folder.write("one.safetensors", {"a", "b"});
  for (const auto& [map, said] : std::vector<std::pair<std::string, std::string>>{
           {"3", "\"weight_map\""},
           {"{}", "\"weight_map\""},
           {R"({"a": 1})", "tensor a lies in 1"},
           {R"({"a": "../one.safetensors"})", "beside the index"},
           {R"({"a": ".."})", "beside the index"},
           {R"({"a": "two.safetensors"})", "two.safetensors is not there"},
           {R"({"a": "one.safetensors", "b": "one.safetensors", "c": "one.safetensors"})",
            "tensor c is not in one.safetensors"},
           {R"({"a": "one.safetensors"})", "tensor b of"}}) {
    folder.write_index(map);
    EXPECT_THAT(folder.problem(), HasSubstr(said)) << map;
  }
  folder.write("two.safetensors", {"b"});
  folder.write_index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  EXPECT_THAT(folder.problem(), AllOf(HasSubstr("tensor b is in"), HasSubstr("one.safetensors, too")));
}

}  // namespace
}  // namespace shardmark::weights
