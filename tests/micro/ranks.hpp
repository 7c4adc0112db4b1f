#pragma once
// What the benchmarks share. They run under mpirun or alone; an iteration's time is that of the slowest rank, and rank 0
// alone reports. Iteration counts are fixed: a count chosen by each rank's clock would deadlock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "world/handles.hpp"  // brings mpi.h
#include "world/world.hpp"

namespace shardmark::micro {

/// Swallows the reports of ranks other than 0.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

/// The largest value of all ranks.
inline double largest(double mine) {
  double most = 0;
  if (MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS) {
    throw std::runtime_error("MPI_Allreduce failed");
  }
  return most;
}

inline void barrier() {
  if (MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS) {
    throw std::runtime_error("MPI_Barrier failed");
  }
}

/// Times `batch` once an iteration, after one that is not timed. Returns the median over iterations of the slowest rank's
/// seconds.
template <typename Batch>
double median_of_batches(benchmark::State& state, Batch&& batch) {
  batch();
  std::vector<double> times_s;
  for (auto _ : state) {
    barrier();
    const double start_s = base::now_s();
    batch();
    times_s.push_back(largest(base::now_s() - start_s));
    state.SetIterationTime(times_s.back());
  }
  std::ranges::sort(times_s);
  return times_s[times_s.size() / 2];
}

/// Runs what is registered, on all ranks.
inline void run_registered(const world::World& world) {
  if (world.rank() == 0) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    SilentReporter silent;
    benchmark::RunSpecifiedBenchmarks(&silent);
  }
}

/// The main program: `body(world, arguments)` gets what Google Benchmark left of the arguments, registers and runs.
template <typename Body>
int run_in_world(int argc, char** argv, Body&& body) {
  world::World world(world::WorldOptions{});
  try {
    for (const std::string_view argument : std::span(argv, static_cast<std::size_t>(argc))) {
      if (argument.starts_with("--benchmark_enable_random_interleaving")) {
        throw base::ConfigError(std::string(argument) + ": every rank would draw an order of its own; leave it out");
      }
    }
    benchmark::Initialize(&argc, argv);
    body(world, std::span<char* const>(argv + 1, static_cast<std::size_t>(argc) - 1));
    return 0;
  } catch (const std::exception& error) {
    base::log_error(error.what());
    world.abort(base::exit_code_of(error));
  }
}

/// For programs that take no arguments of their own.
inline void refuse_arguments(std::span<char* const> arguments) {
  if (!arguments.empty()) {
    throw base::ConfigError(std::string(arguments.front()) + ": accepted are flags of Google Benchmark only");
  }
}

}  // namespace shardmark::micro
