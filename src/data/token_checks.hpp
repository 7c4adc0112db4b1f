#pragma once
// The rules of one row of a tokens file, and the counts that follow from it. Inside the data folder only.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/token_source.hpp"

namespace shardmark::data {

/// One row as read. `segment_ids` is empty and `length` absent where the file has no such dataset.
struct TokenRow {
  std::int64_t index = 0;
  std::span<const std::int32_t> input_ids;
  std::span<const std::int32_t> labels;
  std::span<const std::int32_t> segment_ids;
  std::optional<std::int32_t> length;
};

/// Collects the first fault of each rule, with the number of further ones.
class TokenRowChecker {
 public:
  explicit TokenRowChecker(std::int64_t vocabulary) : vocabulary_(vocabulary) {}

  /// Checks a row; the counts mean nothing if it breaks a rule.
  TokenCounts check(const TokenRow& row);
  /// Sentences that start with `file`, "data file PATH"; none if all rows were right.
  [[nodiscard]] std::vector<std::string> problems(const std::string& file) const;

 private:
  struct Fault {
    const char* dataset = "";
    std::string first;
    std::int64_t count = 0;
  };

  std::int64_t tokens_of(const TokenRow& row);
  void check_segments(const TokenRow& row);
  void check_values(const TokenRow& row, std::int64_t tokens);

  std::int64_t vocabulary_;
  Fault bad_token_{.dataset = "input_ids", .first = {}};
  Fault bad_label_{.dataset = "labels", .first = {}};
  Fault first_label_{.dataset = "labels", .first = {}};
  Fault padding_label_{.dataset = "labels", .first = {}};
  Fault bad_segment_{.dataset = "segment_ids", .first = {}};
  Fault bad_length_{.dataset = "lengths", .first = {}};
};

}  // namespace shardmark::data
