#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/combinations.hpp"
#include "config/run_config.hpp"

namespace shardmark::config {
namespace {

constexpr std::int64_t kMostRows = 1'000'000'000'000;  // as data.global_batch accepts

/// "2 or 4": the divisors of `total` next to `wanted`, which is none itself.
std::string nearest_divisors(std::int64_t total, std::int64_t wanted) {
  std::int64_t below = 0;
  std::int64_t above = 0;
  for (std::int64_t small = 1; small <= total / small; ++small) {
    for (const std::int64_t divisor : {small, total / small}) {
      if (total % small != 0) {
        continue;
      }
      if (divisor < wanted) {
        below = std::max(below, divisor);
      } else if (above == 0 || divisor < above) {
        above = divisor;
      }
    }
  }
  return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

/// The batch that the three keys and the number of ranks ask for, none of them changed.
struct Wish {
  std::int64_t global;
  std::int64_t micro;
  std::int64_t steps;
  std::int64_t ranks;
};

/// Rows that no choice of whole micro-steps can cut.
[[noreturn]] void refuse_indivisible(const Wish& wish, std::int64_t per_rank, const std::string& cut) {
  std::vector<std::string> remedies{"data.global_batch = " + nearest_multiples(wish.global, wish.ranks * per_rank)};
  if (wish.global % wish.ranks == 0) {
    // Enough rows for each rank, but not in such pieces.
    const std::int64_t share = wish.global / wish.ranks;
    remedies.push_back((wish.micro > 0 ? "data.micro_batch = " : "data.accumulation = ") + nearest_divisors(share, per_rank));
  }
  if (wish.global % per_rank == 0) {
    remedies.push_back(nearest_divisors(wish.global / per_rank, wish.ranks) + " rank(s)");
  }
  throw base::ConfigError(fmt::format("data.global_batch = {} does not divide over {} rank(s) x {}; what works: {}",
                                      wish.global, wish.ranks, cut, base::join(remedies, "; or ")));
}

BatchPlan whole_share(const Wish& wish) {
  const std::int64_t steps = std::max<std::int64_t>(1, wish.steps);
  if (wish.global % (wish.ranks * steps) != 0) {
    refuse_indivisible(wish, steps, fmt::format("{} micro-step(s)", steps));
  }
  return {wish.global, wish.global / (wish.ranks * steps), steps};
}

BatchPlan cut_by_micro_batch(const Wish& wish) {
  const std::int64_t unit = wish.ranks * wish.micro;
  if (wish.global % unit != 0) {
    refuse_indivisible(wish, wish.micro, fmt::format("data.micro_batch = {}", wish.micro));
  }
  const std::int64_t steps = wish.global / unit;
  if (wish.steps > 0 && wish.steps != steps) {
    throw base::ConfigError(
        fmt::format("data.accumulation = {} contradicts data.global_batch = {}: over {} rank(s) x data.micro_batch = {} it "
                    "takes {} micro-step(s); drop data.accumulation, or set data.micro_batch = 0",
                    wish.steps, wish.global, wish.ranks, wish.micro, steps));
  }
  return {wish.global, wish.micro, steps};
}

}  // namespace

BatchPlan resolve_batch(const RunConfig& config, int world_size) {
  if (config.technique.name == "single" && world_size > 1) {
    throw base::ConfigError(fmt::format(
        "technique.name = \"single\" trains on one rank, but {} were started: start one, or use \"ddp\"", world_size));
  }
  const Wish wish{config.data.global_batch, config.data.micro_batch, config.data.accumulation, world_size};
  if (wish.global > 0) {
    return wish.micro == 0 ? whole_share(wish) : cut_by_micro_batch(wish);
  }
  const std::int64_t micro = std::max<std::int64_t>(1, wish.micro);
  const std::int64_t steps = std::max<std::int64_t>(1, wish.steps);
  if (micro > kMostRows / (steps * wish.ranks)) {
    throw base::ConfigError(fmt::format("data.micro_batch = {} x {} micro-step(s) x {} rank(s) exceeds {} rows a step", micro,
                                        steps, wish.ranks, kMostRows));
  }
  return {micro * steps * wish.ranks, micro, steps};
}

}  // namespace shardmark::config
