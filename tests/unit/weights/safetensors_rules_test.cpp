// What the reader refuses: a table of byte strings, one per rule, and a valid file cut and changed at every place.

#if defined(__GNUC__) && !defined(__clang__)
// The counting operator new below stands on malloc, which inlining makes g++ mistake for a mismatch with free.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "weights/safetensors.hpp"

namespace {
thread_local std::size_t largest_allocation = 0;
}

// The test program's allocations pass here, so that the largest one a file causes can be told.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  largest_allocation = std::max(largest_allocation, size);
  return std::malloc(size != 0 ? size : 1);
}
void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace shardmark::weights {
namespace {

using Fault = SafetensorsFault;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_file;

std::string with_length(std::uint64_t length, const std::string& rest) {
  const auto raw = std::bit_cast<std::array<char, 8>>(length);
  return std::string(raw.data(), raw.size()) + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header) + std::string(data_bytes, '\x01');
}

/// A file of one tensor "t".
std::string one(const std::string& fields, std::size_t data_bytes) {
  return file_of("{\"t\":{" + fields + "}}", data_bytes);
}

struct Case {
  const char* name;
  std::string bytes;
  Fault fault;
  const char* message;
};

std::string many_on_one_range() {
  std::string header = "{";
  for (int i = 0; i < 1000; ++i) {
    header +=
        (i > 0 ? "," : "") + std::string("\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  }
  return file_of(header + "}", 8);
}

std::string many_dimensions() {
  std::string shape = "0";
  for (int i = 0; i < 64; ++i) {
    shape += ",0";
  }
  return one(R"("dtype":"U8","data_offsets":[0,0],"shape":[)" + shape + "]", 0);
}

const std::string kGood = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

std::vector<Case> length_and_json_cases() {
  return {
      {"empty", "", Fault::too_short, "0 bytes"},
      {"seven_bytes", "\x01\x02\x03\x04\x05\x06\x07", Fault::too_short, "7 bytes"},
      {"length_wraps", with_length(0xFFFFFFFFFFFFFFFFULL, "{}"), Fault::header_too_large, "18446744073709551615"},
      {"length_above_limit", with_length(100'000'001, "{}"), Fault::header_too_large, "limit is 100000000"},
      {"length_at_limit_outside", with_length(100'000'000, "{}"), Fault::header_outside_file, "only 2 follow"},
      {"length_one_too_long", with_length(3, "{}"), Fault::header_outside_file, "only 2 follow"},
      {"not_utf8", file_of("{\"\xff\xfe\":{" + kGood + "}}", 8), Fault::header_not_utf8, "UTF-8"},
      {"no_header", with_length(0, ""), Fault::header_not_json, "not valid JSON"},
      {"not_json", file_of("{\"t\":", 0), Fault::header_not_json, "not valid JSON"},
      {"nul_header", file_of(std::string(8, '\0'), 0), Fault::header_not_json, "not valid JSON"},
      {"two_documents", file_of("{}{}", 0), Fault::header_not_json, "not valid JSON"},
      {"comment", file_of("{}//x", 0), Fault::header_not_json, "not valid JSON"},
      {"an_array", file_of("[]", 0), Fault::header_not_object, "an array"},
      {"a_number", file_of("17", 0), Fault::header_not_object, "17"},
      {"nested_entry", one(R"("shape":{"x":{}})", 0), Fault::nested_too_deep, "nests"},
      {"nested_shape", one(R"("shape":[[1]])", 0), Fault::nested_too_deep, "nests"},
      {"deep", file_of(std::string(100'000, '['), 0), Fault::header_not_object, "an array"},
      {"deep_objects", one(R"("dtype":)" + std::string(50'000, '{'), 0), Fault::nested_too_deep, "nests"},
  };
}

std::vector<Case> entry_cases() {
  return {
      {"same_tensor_twice", file_of("{\"t\":{" + kGood + "},\"t\":{" + kGood + "}}", 8), Fault::duplicate_name,
       "\"t\" comes twice"},
      {"same_field_twice", one(kGood + R"(,"dtype":"F32")", 8), Fault::duplicate_name, "dtype"},
      {"same_metadata_twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), Fault::duplicate_name, "\"a\""},
      {"metadata_twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), Fault::duplicate_name, "__metadata__"},
      {"metadata_number", file_of(R"({"__metadata__":{"a":1}})", 0), Fault::bad_metadata, "texts"},
      {"metadata_text", file_of(R"({"__metadata__":"a"})", 0), Fault::bad_metadata, "texts"},
      {"metadata_list", file_of(R"({"__metadata__":{"a":[]}})", 0), Fault::bad_metadata, "texts"},
      {"entry_null", file_of(R"({"t":null})", 0), Fault::bad_entry, "null"},
      {"entry_text", file_of(R"({"t":"F32"})", 0), Fault::bad_entry, "F32"},
      {"no_dtype", one(R"("shape":[2],"data_offsets":[0,8])", 8), Fault::bad_entry, "dtype is missing"},
      {"no_shape", one(R"("dtype":"F32","data_offsets":[0,8])", 8), Fault::bad_entry, "shape is missing"},
      {"no_offsets", one(R"("dtype":"F32","shape":[2])", 8), Fault::bad_entry, "data_offsets is missing"},
      {"unknown_field", one(kGood + R"(,"stride":[1])", 8), Fault::bad_entry, "stride"},
      {"unknown_type", one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])", 8), Fault::unknown_type, "F33"},
      {"type_number", one(R"("dtype":32,"shape":[2],"data_offsets":[0,8])", 8), Fault::unknown_type, "32"},
      {"negative_extent", one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8), Fault::bad_shape, "-2"},
      {"fraction_extent", one(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])", 8), Fault::bad_shape, "2.5"},
      {"shape_number", one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])", 8), Fault::bad_shape, "2"},
      {"many_dimensions", many_dimensions(), Fault::bad_shape, "64 dimensions"},
      {"shape_overflows", one(R"("dtype":"F32","shape":[2,9223372036854775807],"data_offsets":[0,8])", 8),
       Fault::shape_overflow, "overflows"},
      {"shape_wraps_to_8", one(R"("dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8])", 8), Fault::shape_overflow,
       "overflows"},
      {"extent_above_64_bits", one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])", 8),
       Fault::shape_overflow, "9223372036854775808"},
      {"one_offset", one(R"("dtype":"F32","shape":[2],"data_offsets":[0])", 8), Fault::bad_offsets, "1 numbers"},
      {"three_offsets", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", 8), Fault::bad_offsets, "more than two"},
      {"negative_offset", one(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])", 8), Fault::bad_offsets, "-8"},
      {"text_offset", one(R"("dtype":"F32","shape":[2],"data_offsets":["0","8"])", 8), Fault::bad_offsets, "\"0\""},
  };
}

std::vector<Case> layout_cases() {
  return {
      {"begin_after_end", one(R"("dtype":"F32","shape":[2],"data_offsets":[16,8])", 16), Fault::offsets_reversed, "[16, 8]"},
      {"offsets_too_few", one(R"("dtype":"F32","shape":[1000,1000],"data_offsets":[0,4])", 4), Fault::size_mismatch, "4000000"},
      {"offsets_too_many", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", 8), Fault::size_mismatch, "\"t\""},
      {"offset_above_64_bits", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])", 8),
       Fault::data_outside_file, "18446744073709551615"},
      {"trailing_byte", one(kGood, 9), Fault::trailing_bytes, "1 bytes follow"},
      {"trailing_without_tensors", file_of("{}", 1), Fault::trailing_bytes, "1 bytes follow"},
      {"truncated_data", one(kGood, 7), Fault::data_outside_file, "truncated"},
      {"hole_first", one(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])", 16), Fault::hole, "hole from 0"},
      {"hole_between",
       file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})",
               16),
       Fault::hole, "hole from 4"},
      {"overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
               6),
       Fault::overlap, "\"b\""},
      {"many_on_one_range", many_on_one_range(), Fault::overlap, "starts at 0"},
  };
}

class RefusedFile : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedFile, NamesTheRuleThatItBreaks) {
  const TemporaryFolder folder;
  const std::string path = folder.file("weights.safetensors");
  write_file(path, GetParam().bytes);

  largest_allocation = 0;
  try {
    const SafetensorsFile file(path);
    FAIL() << "was accepted";
  } catch (const SafetensorsError& error) {
    EXPECT_EQ(name_of(error.fault()), name_of(GetParam().fault)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_EQ(error.code(), base::ExitCode::usage);
  }
  // Messages, streams of the test and the parser's first buffers fit into 16 KiB.
  EXPECT_LE(largest_allocation, std::max<std::size_t>(2 * GetParam().bytes.size(), 16384));
}

constexpr auto kCaseName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(LengthAndJson, RefusedFile, ::testing::ValuesIn(length_and_json_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Entry, RefusedFile, ::testing::ValuesIn(entry_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Layout, RefusedFile, ::testing::ValuesIn(layout_cases()), kCaseName);

TEST(SafetensorsRules, ManyTensorsStayBelowTwiceTheFile) {
  std::string header = "{";
  for (int i = 0; i < 20'000; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,0]})";
  }
  const TemporaryFolder folder;
  const std::string path = folder.file("weights.safetensors");
  const std::string bytes = file_of(header + "}", 0);
  write_file(path, bytes);

  largest_allocation = 0;
  EXPECT_THROW(SafetensorsFile{path}, SafetensorsError);
  EXPECT_LE(largest_allocation, bytes.size() + 1);
}

/// A valid file of about 300 bytes with three tensors, one of them empty, and metadata.
std::string valid_file() {
  return file_of(
      R"({"__metadata__":{"format":"pt"},"first.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("none":{"dtype":"I64","shape":[0,7],"data_offsets":[24,24]},"scalar":{"dtype":"F64","shape":[],"data_offsets":[24,32]}} )",
      32);
}

TEST(SafetensorsRules, AValidFileCutAtAnyLengthIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("weights.safetensors");
  const std::string whole = valid_file();
  write_file(path, whole);
  EXPECT_EQ(SafetensorsFile(path).tensors().size(), 3U);

  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_file(path, whole.substr(0, length));
    EXPECT_THROW(SafetensorsFile{path}, SafetensorsError) << "cut to " << length << " bytes";
  }
}

TEST(SafetensorsRules, AnyBitFlippedInTheHeaderIsRefusedOrLeavesAConsistentFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("weights.safetensors");
  const std::string whole = valid_file();
  const std::size_t header_end = whole.size() - 32;
  int num_refused = 0;

  for (std::size_t bit = 0; bit < 8 * header_end; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(static_cast<unsigned char>(changed[bit / 8]) ^ (1U << (bit % 8)));
    write_file(path, changed);
    largest_allocation = 0;
    try {
      const SafetensorsFile file(path);
      std::int64_t total_bytes = 0;
      for (const TensorInfo& tensor : file.tensors()) {
        std::vector<std::byte> data(static_cast<std::size_t>(tensor.num_bytes));
        file.read_into(tensor, data);
        EXPECT_EQ(tensor.begin, total_bytes) << "bit " << bit;
        total_bytes += tensor.num_bytes;
      }
      EXPECT_EQ(total_bytes, 32) << "bit " << bit;  // a changed name or metadata is all that may pass
    } catch (const SafetensorsError&) {
      ++num_refused;
    }
    EXPECT_LE(largest_allocation, 16384U) << "bit " << bit;
  }
  EXPECT_GT(num_refused, 1500);
}

}  // namespace
}  // namespace shardmark::weights
