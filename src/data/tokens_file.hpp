#pragma once
// HDF5 files of kind "tokens": /input_ids and /labels int32 (rows, length), optionally /segment_ids of the same shape and
// /lengths int32 (rows). Everything is checked when the file is opened; afterwards files below 256 MiB stay in memory and of
// larger ones only the rows asked for are read.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/token_source.hpp"

namespace shardmark::data {

/// What the model expects of the file.
struct TokensExpectation {
  std::int64_t vocabulary = 0;  // tokens and labels lie in [0, vocabulary)
  std::int64_t length = 0;      // of every row; 0 accepts any
  std::int64_t keep_below_bytes = std::int64_t{256} << 20;
};

class TokensFile final : public TokenSource {
 public:
  /// Opens read-only and reads everything once, in pieces. Checks kind, schema_version, shapes, types, the range of every
  /// number, that segments are numbered 1, 2, ... without gaps and end in padding (0), that /lengths agrees with them, and
  /// that the first label of a segment and every label of padding is -100. Throws DataError naming path, dataset, row and
  /// value; all problems at once where several can be told.
  TokensFile(const std::string& path, const TokensExpectation& expectation);
  ~TokensFile() override;

  [[nodiscard]] std::int64_t num_rows() const override;
  [[nodiscard]] std::int64_t length() const override;
  [[nodiscard]] bool has_segments() const override;
  [[nodiscard]] TokenCounts counts(std::int64_t row) const override;
  [[nodiscard]] TokenCounts total() const override;
  [[nodiscard]] std::string describe() const override;
  /// Attribute sha256 of the file. "" if it has none.
  [[nodiscard]] const std::string& digest() const;
  [[nodiscard]] bool in_memory() const;
  void read(std::span<const std::int64_t> rows, const TokenRows& out) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardmark::data
