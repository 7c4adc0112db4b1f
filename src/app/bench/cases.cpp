#include "app/bench/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace shardmark::app::bench {
namespace {

using comm::Operation;

std::vector<std::int64_t> places_of(Operation operation, const CommOptions& options) {
  switch (operation) {
    case Operation::all_reduce:
    case Operation::broadcast: return {1};
    case Operation::all_to_all:
    case Operation::send_receive: return {0};
    case Operation::barrier: return {-1};
    case Operation::reduce_scatter:
    case Operation::all_gather: break;
  }
  std::vector<std::int64_t> places;
  if (options.out_of_place) {
    places.push_back(0);
  }
  if (options.in_place) {
    places.push_back(1);
  }
  return places;
}

void add_sizes(std::vector<Case>& cases, Case one, const CommOptions& options, int ranks) {
  std::int64_t bytes = options.min_bytes;
  while (true) {
    const std::int64_t before = one.count;
    one.count = message_count(one.operation, bytes, one.dtype, ranks);
    if (one.count != before) {
      cases.push_back(one);
    }
    if (bytes == options.max_bytes) {
      break;
    }
    bytes = bytes > options.max_bytes / options.factor ? options.max_bytes : bytes * options.factor;
  }
}

}  // namespace

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

bool has_parts(Operation operation) {
  return operation == Operation::reduce_scatter || operation == Operation::all_gather || operation == Operation::all_to_all;
}

std::int64_t message_count(Operation operation, std::int64_t bytes, base::DType dtype, int ranks) {
  const auto size = static_cast<std::int64_t>(base::size_of(dtype));
  const std::int64_t unit = has_parts(operation) ? ranks : 1;
  return std::max(unit, bytes / size / unit * unit);
}

std::vector<Case> make_cases(const CommOptions& options, int ranks) {
  SM_CHECK(options.max_bytes >= options.min_bytes, "the largest size is not below the smallest");
  std::vector<Case> cases;
  std::vector<std::string> problems;
  for (const auto operation : options.operations) {
    if (operation == Operation::barrier) {
      cases.push_back({});
      continue;
    }
    const std::vector<comm::Reduction> none{comm::Reduction::sum};
    for (const auto dtype : options.dtypes) {
      const Case least{operation, dtype, comm::Reduction::sum, 0, message_count(operation, 1, dtype, ranks)};
      if (least.message_bytes() > options.max_bytes) {
        problems.push_back(fmt::format("--max {}: {} of {} over {} rank{} has {} bytes at least", options.max_bytes,
                                       name_of(operation), base::name_of(dtype), ranks, ranks == 1 ? "" : "s",
                                       least.message_bytes()));
        continue;
      }
      for (const auto reduction : reduces(operation) ? options.reductions : none) {
        for (const auto in_place : places_of(operation, options)) {
          add_sizes(cases, {operation, dtype, reduction, in_place, 0}, options, ranks);
        }
      }
    }
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  return cases;
}

std::int64_t default_iterations(std::int64_t message_bytes) {
  return std::clamp<std::int64_t>((std::int64_t{128} << 20) / std::max<std::int64_t>(1, message_bytes), 20, 200);
}

double bus_factor(Operation operation, int ranks) {
  if (ranks < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::all_reduce: return 2 * share;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all: return share;
    case Operation::broadcast:
    case Operation::send_receive: return 1;
    case Operation::barrier: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

Times summarise(std::vector<double> times_s) {
  SM_CHECK(!times_s.empty(), "nothing was timed");
  std::ranges::sort(times_s);
  const std::size_t count = times_s.size();
  const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(count)));
  return {.p50_s = (times_s[(count - 1) / 2] + times_s[count / 2]) / 2,
          .p99_s = times_s[std::min(count, p99) - 1],
          .min_s = times_s.front(),
          .mean_s = std::accumulate(times_s.begin(), times_s.end(), 0.0) / static_cast<double>(count)};
}

std::vector<double> slowest(const std::vector<std::vector<double>>& times_of_ranks_s) {
  std::vector<double> most = times_of_ranks_s.at(0);
  for (const auto& times_s : times_of_ranks_s) {
    SM_CHECK(times_s.size() == most.size(), "ranks timed unequal numbers of iterations");
    std::ranges::transform(times_s, most, most.begin(), [](double a, double b) { return std::max(a, b); });
  }
  return most;
}

}  // namespace shardmark::app::bench
