#pragma once
// Writes HDF5 files of kind "tokens", right ones and wrong ones, for tests of what reads them.

#include <cstdint>
#include <string>

#include "tests/support/vectors_writer.hpp"

namespace shardmark::testing {

struct TokensToWrite {
  DatasetToWrite input_ids{.shape = {}, .values = {}, .type = H5T_NATIVE_INT32};
  DatasetToWrite labels{.shape = {}, .values = {}, .type = H5T_NATIVE_INT32};
  DatasetToWrite segment_ids{.shape = {}, .values = {}, .type = H5T_NATIVE_INT32};
  DatasetToWrite lengths{.shape = {}, .values = {}, .type = H5T_NATIVE_INT32};
  std::string kind = "tokens";      // "": left out
  std::int64_t schema_version = 1;  // -1: left out
};

inline void write_tokens(const std::string& path, const TokensToWrite& content) {
  const auto file = create_data_file(path, content.kind, content.schema_version);
  write_dataset(file.get(), "input_ids", content.input_ids);
  write_dataset(file.get(), "labels", content.labels);
  write_dataset(file.get(), "segment_ids", content.segment_ids);
  write_dataset(file.get(), "lengths", content.lengths);
}

}  // namespace shardmark::testing
