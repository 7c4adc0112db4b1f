#pragma once
// HDF5 files of kind "vectors": /features float32 (rows, width) and /targets int64 (rows) or float32 (rows, k). Everything
// is checked when the file is opened; afterwards files below 256 MiB stay in memory and larger ones are read in slices.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/vector_source.hpp"

namespace shardmark::data {

/// What the model expects of the file; 0 accepts anything.
struct VectorsExpectation {
  std::int64_t width = 0;
  std::int64_t target_width = 0;  // regression targets of this width
  std::int64_t classes = 0;       // class labels in [0, classes)
  std::int64_t keep_below_bytes = std::int64_t{256} << 20;
};

class VectorsFile final : public VectorSource {
 public:
  /// Opens read-only and reads everything once, in pieces: kind, schema_version, shapes, types, finite values, label range.
  /// Throws DataError naming path, dataset, row and value; all problems at once where several can be told.
  VectorsFile(const std::string& path, const VectorsExpectation& expectation);
  ~VectorsFile() override;
  VectorsFile(const VectorsFile&) = delete;
  VectorsFile& operator=(const VectorsFile&) = delete;

  [[nodiscard]] std::int64_t num_rows() const override;
  [[nodiscard]] std::int64_t width() const override;
  [[nodiscard]] std::int64_t target_width() const override;
  /// The expected number of classes, or the largest label + 1.
  [[nodiscard]] std::int64_t num_classes() const override;
  [[nodiscard]] std::string describe() const override;
  /// Attribute sha256 of the file, for records: two runs on equal data name equal digests. "" if it has none.
  [[nodiscard]] const std::string& digest() const;
  [[nodiscard]] bool in_memory() const;
  void read(std::span<const std::int64_t> rows, const VectorRows& out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardmark::data
