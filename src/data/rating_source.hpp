#pragma once
// Ratings of items by users, from a file or made up. Says nothing of steps, ranks or batches: see data/sampler.hpp.

#include <cstdint>
#include <span>
#include <string>

namespace shardmark::data {

/// Where rows land, one number each; lent for the call.
struct RatingRows {
  std::span<std::int64_t> users;
  std::span<std::int64_t> items;
  std::span<float> labels;
};

class RatingSource {
 public:
  RatingSource() = default;
  RatingSource(const RatingSource&) = delete;
  RatingSource& operator=(const RatingSource&) = delete;
  virtual ~RatingSource() = default;

  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  /// Users lie in [0, num_users()).
  [[nodiscard]] virtual std::int64_t num_users() const = 0;
  /// How many different items there are; their ids may be larger.
  [[nodiscard]] virtual std::int64_t num_items() const = 0;
  /// Where rows come from, for output and record: "synthetic" or a path.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Reads rows by index. An index of -1 is a filler: user 0, item 0, label 0. Spans have exactly the rows' size. Not safe to
  /// call from two threads at once. Throws IoError if reading fails.
  virtual void read(std::span<const std::int64_t> rows, const RatingRows& out) = 0;
};

}  // namespace shardmark::data
