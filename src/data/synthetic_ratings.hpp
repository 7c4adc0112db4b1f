#pragma once
// Made-up ratings, each a pure function of (seed, row): the same for every rank count and technique. Users and items are drawn
// by Zipf's law, so that few of them come up often, as in real data; planted factors of 16 numbers each decide how likely a
// rating is positive, so a model can learn them. Nothing is kept of a user or an item.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "data/rating_source.hpp"

namespace shardmark::data {

struct SyntheticRatingsOptions {
  std::int64_t num_rows = 0;
  std::int64_t num_users = 0;
  std::int64_t num_items = 0;
  double exponent = 1.05;  // the k-th most frequent id comes up in proportion to k^-exponent
  std::uint64_t seed = 0;
};

class SyntheticRatings final : public RatingSource {
 public:
  /// Throws ConfigError naming each number that is wrong. Takes 8 bytes of memory for each user and item.
  explicit SyntheticRatings(const SyntheticRatingsOptions& options);

  [[nodiscard]] std::int64_t num_rows() const override { return options_.num_rows; }
  [[nodiscard]] std::int64_t num_users() const override { return options_.num_users; }
  [[nodiscard]] std::int64_t num_items() const override { return options_.num_items; }
  [[nodiscard]] std::string describe() const override { return "synthetic"; }
  void read(std::span<const std::int64_t> rows, const RatingRows& out) override;

  /// How likely this user's rating of this item is positive.
  [[nodiscard]] double probability(std::int64_t user, std::int64_t item) const;

 private:
  /// Ids in [0, size), in an order of frequency that has nothing to do with their numbers.
  class Zipf {
   public:
    Zipf(std::int64_t size, double exponent, std::uint64_t seed, std::uint64_t salt);
    /// Of a uniform number in [0, 1).
    [[nodiscard]] std::int64_t operator()(double uniform) const;

   private:
    std::vector<double> cumulative_;
    base::RandomPermutation id_of_place_;
  };

  SyntheticRatingsOptions options_;
  base::RandomStream draws_;
  base::RandomStream user_factors_;
  base::RandomStream item_factors_;
  Zipf users_;
  Zipf items_;
};

}  // namespace shardmark::data
