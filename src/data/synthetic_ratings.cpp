#include "data/synthetic_ratings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace shardmark::data {
namespace {

// With factors uniform in (-1, 1) a product of 16 has deviation sqrt(16 / 9) = 4/3: the logit's is then 8/3, so most ratings
// are likely one or the other and some are noise.
constexpr double kSteepness = 2;

SyntheticRatingsOptions checked(const SyntheticRatingsOptions& options) {
  std::vector<std::string> problems;
  const auto at_least_one = [&](const char* what, std::int64_t value) {
    if (value < 1) {
      problems.push_back(fmt::format("synthetic ratings: {} {}; at least one is needed", value, what));
    }
  };
  at_least_one("rows", options.num_rows);
  at_least_one("users", options.num_users);
  at_least_one("movies", options.num_items);
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  return options;
}

/// The 16 bytes of one block: as many factors, whole numbers from -255 to 255 in steps of 2.
std::array<int, 16> factors(const base::RandomStream& stream, std::int64_t id) {
  const auto words = base::philox(stream.key(), static_cast<std::uint64_t>(id), stream.salt());
  std::array<int, 16> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = 2 * static_cast<int>((words[i / 4] >> (8 * (i % 4))) & 0xFFU) - 255;
  }
  return all;
}

}  // namespace

SyntheticRatings::Zipf::Zipf(std::int64_t size, double exponent, std::uint64_t seed, std::uint64_t salt)
    : cumulative_(static_cast<std::size_t>(size)), id_of_place_(seed, salt, size) {
  double sum = 0;
  for (std::size_t place = 0; place < cumulative_.size(); ++place) {
    sum += std::pow(static_cast<double>(place + 1), -exponent);
    cumulative_[place] = sum;
  }
}

std::int64_t SyntheticRatings::Zipf::operator()(double uniform) const {
  const auto found = std::ranges::upper_bound(cumulative_, uniform * cumulative_.back());
  return id_of_place_(std::min<std::int64_t>(found - cumulative_.begin(), std::ssize(cumulative_) - 1));
}

SyntheticRatings::SyntheticRatings(const SyntheticRatingsOptions& options)
    : options_(checked(options)),
      draws_(options.seed, "ratings.draws"),
      user_factors_(options.seed, "ratings.user_factors"),
      item_factors_(options.seed, "ratings.item_factors"),
      users_(options.num_users, options.exponent, options.seed, 1),
      items_(options.num_items, options.exponent, options.seed, 2) {}

double SyntheticRatings::probability(std::int64_t user, std::int64_t item) const {
  const auto of_user = factors(user_factors_, user);
  const auto of_item = factors(item_factors_, item);
  int product = 0;
  for (std::size_t i = 0; i < of_user.size(); ++i) {
    product += of_user[i] * of_item[i];
  }
  return 1 / (1 + std::exp(-kSteepness * product / (255.0 * 255.0)));
}

void SyntheticRatings::read(std::span<const std::int64_t> rows, const RatingRows& out) {
  SM_CHECK(out.users.size() == rows.size() && out.items.size() == rows.size() && out.labels.size() == rows.size(),
           "buffers do not fit the rows that were asked for");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SM_CHECK(rows[i] >= -1 && rows[i] < options_.num_rows, "a row was asked for that synthetic ratings do not have");
    if (rows[i] < 0) {
      out.users[i] = out.items[i] = 0;
      out.labels[i] = 0;
      continue;
    }
    // One block a row: the fourth word is not needed.
    const auto words = base::philox(draws_.key(), static_cast<std::uint64_t>(rows[i]), draws_.salt());
    const auto uniform = [&](std::size_t word) { return words[word] * 0x1.0p-32; };
    out.users[i] = users_(uniform(0));
    out.items[i] = items_(uniform(1));
    out.labels[i] = uniform(2) < probability(out.users[i], out.items[i]) ? 1.0F : 0.0F;
  }
}

}  // namespace shardmark::data
