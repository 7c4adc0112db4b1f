#pragma once
// A folder with one record being written in it, for tests of what writes and reads records.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "record/rows.hpp"
#include "record/writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace shardmark::testing {

class RecordFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("run.h5"); }
  [[nodiscard]] std::string partial() const { return path() + ".partial"; }

  [[nodiscard]] record::RecordWriter open(bool overwrite = false) const {
    record::RunAttributes attributes;
    attributes.preset = "mlp";
    attributes.world_size = 3;
    return {{path(), overwrite, nullptr}, attributes, "[model]\n", {{"model.width", "64", "preset mlp"}}};
  }

  /// Steps first, first + 1, ...: the loss of step i is 1 / (i + 1).
  static std::vector<record::StepRow> steps(std::int64_t count, std::int64_t first = 0) {
    std::vector<record::StepRow> rows(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      rows[static_cast<std::size_t>(i)].step = first + i;
      rows[static_cast<std::size_t>(i)].loss = 1.0 / static_cast<double>(first + i + 1);
    }
    return rows;
  }

  /// A complete record of `count` steps at `path()`.
  void write_complete(std::int64_t count = 10) const {
    auto writer = open();
    writer.append_steps(steps(count));
    writer.finish("complete", "", 0);
  }

  TemporaryFolder folder_;
};

}  // namespace shardmark::testing
