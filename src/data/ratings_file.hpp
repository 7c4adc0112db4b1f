#pragma once
// HDF5 files of kind "ratings": /user int64, /item int64, /label float32, one a row, and attributes num_users, num_items.
// Everything is checked when the file is opened; afterwards files below 256 MiB stay in memory and larger ones are read in
// slices.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/rating_source.hpp"

namespace shardmark::data {

/// What the model expects of the file.
struct RatingsExpectation {
  std::int64_t users = 0;  // users lie below it; 0 = below the file's num_users
  std::int64_t keep_below_bytes = std::int64_t{256} << 20;
};

class RatingsFile final : public RatingSource {
 public:
  /// Opens read-only and reads everything once: kind, schema_version, attributes, shapes, types, user range, items of at least
  /// 0, finite labels from 0 to 1. Throws DataError naming path, dataset, row and value; all problems at once where several can
  /// be told.
  RatingsFile(const std::string& path, const RatingsExpectation& expectation);
  ~RatingsFile() override;

  [[nodiscard]] std::int64_t num_rows() const override;
  [[nodiscard]] std::int64_t num_users() const override;
  [[nodiscard]] std::int64_t num_items() const override;
  [[nodiscard]] std::string describe() const override;
  void read(std::span<const std::int64_t> rows, const RatingRows& out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardmark::data
