#pragma once
// The arithmetic of collective benchmarks, as nccl-tests define it (NVIDIA/nccl-tests doc/PERFORMANCE.md): which cases there
// are, sizes, bandwidths, statistics. Pure functions.

#include <cstdint>
#include <vector>

#include "app/bench/options.hpp"

namespace shardmark::app::bench {

/// One row to measure.
struct Case {
  comm::Operation operation = comm::Operation::barrier;
  base::DType dtype = base::DType::fp32;
  comm::Reduction reduction = comm::Reduction::sum;
  std::int64_t in_place = -1;  // 0, 1; -1 where there is no buffer
  std::int64_t count = 0;      // elements of the message S
  [[nodiscard]] std::int64_t message_bytes() const { return count * static_cast<std::int64_t>(base::size_of(dtype)); }
};

[[nodiscard]] bool reduces(comm::Operation operation);
/// Whether S falls into one equal part a rank.
[[nodiscard]] bool has_parts(comm::Operation operation);

/// Elements of a message of about `bytes`: whole ones, and equally many for each of `ranks` where the operation has parts. As
/// many as `bytes` hold, but at least one, and one a part.
[[nodiscard]] std::int64_t message_count(comm::Operation operation, std::int64_t bytes, base::DType dtype, int ranks);

/// Every case in the order of the table, none twice: small sizes may be the same number of elements. Sizes go from min_bytes by
/// factor, and the last is max_bytes, or what is nearest below it (see message_count). Throws ConfigError naming every
/// operation and type of which even the least message is above max_bytes.
[[nodiscard]] std::vector<Case> make_cases(const CommOptions& options, int ranks);

/// Timed calls where none are asked for: 128 MiB in all, from 20 to 200.
[[nodiscard]] std::int64_t default_iterations(std::int64_t message_bytes);

/// busbw / algbw; NaN for a barrier, and for one rank, which sends nothing.
[[nodiscard]] double bus_factor(comm::Operation operation, int ranks);

struct Times {
  double p50_s = 0;
  double p99_s = 0;
  double min_s = 0;
  double mean_s = 0;
};
/// Of one time per iteration, at least one. p50: the middle, or the mean of both middles. p99: nearest rank.
[[nodiscard]] Times summarise(std::vector<double> times_s);

/// Of each iteration the slowest rank's time. All ranks have equally many.
[[nodiscard]] std::vector<double> slowest(const std::vector<std::vector<double>>& times_of_ranks_s);

}  // namespace shardmark::app::bench
