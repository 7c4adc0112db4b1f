// All-reduce by size: ours beside plain MPI_Allreduce, in turn. Run under mpirun; an iteration's time is that of the
// slowest rank, and rank 0 alone reports. Iteration counts are fixed: a count chosen by each rank's clock would deadlock.

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
#include "comm/factory.hpp"
#include "comm/mpi_communicator.hpp"
#include "world/world.hpp"

namespace {

using shardmark::base::now_s;
using shardmark::comm::Buffer;
using shardmark::comm::Purpose;
using shardmark::comm::SumOrder;

struct Setting {
  shardmark::world::World& world;
  shardmark::comm::Communicator& bare;
  shardmark::comm::Communicator& checked;  // and counted: what a run uses
};

/// Swallows the reports of ranks other than 0.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

/// The largest value of all ranks.
double largest(double mine) {
  double most = 0;
  if (MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS) {
    throw std::runtime_error("MPI_Allreduce failed");
  }
  return most;
}

template <typename Reduce>
void measure(benchmark::State& state, const Setting& setting, Reduce&& reduce) {
  const auto bytes = static_cast<std::int64_t>(state.range(0));
  std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  reduce(data);
  const auto expected = static_cast<float>(setting.world.size());
  const bool wrong = std::ranges::any_of(data, [&](float value) { return value != expected; });
  if (largest(wrong ? 1 : 0) > 0) {  // decided once for all ranks
    state.SkipWithError("wrong sum");
    return;
  }
  std::ranges::fill(data, 0.0F);
  std::vector<double> times_s;
  for (auto _ : state) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start_s = now_s();
    reduce(data);
    times_s.push_back(largest(now_s() - start_s));
    state.SetIterationTime(times_s.back());
  }
  std::ranges::sort(times_s);
  state.counters["median_us"] = times_s[times_s.size() / 2] * 1e6;
  state.counters["algbw_GB_s"] = static_cast<double>(bytes) / times_s[times_s.size() / 2] * 1e-9;
}

void register_size(std::int64_t bytes, const Setting& setting) {
  const std::int64_t iterations = std::clamp<std::int64_t>((256LL << 20) / bytes, 10, 1000);
  const auto add = [&](const char* name, auto reduce) {
    benchmark::RegisterBenchmark(name, [setting, reduce](benchmark::State& state) { measure(state, setting, reduce); })
        ->Arg(bytes)
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  const auto sum_with = [](shardmark::comm::Communicator& communicator) {
    return [&communicator](std::vector<float>& data) {
      const Buffer buffer{data.data(), static_cast<std::int64_t>(data.size())};
      communicator.all_reduce(buffer, Purpose::gradient, 0, SumOrder::ordered).wait();
    };
  };
  add("shardmark", sum_with(setting.bare));
  add("MPI_Allreduce", [](std::vector<float>& data) {
    if (MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
      throw std::runtime_error("MPI_Allreduce failed");
    }
  });
  add("shardmark checked", sum_with(setting.checked));
}

}  // namespace

int main(int argc, char** argv) {
  shardmark::world::World world(shardmark::world::WorldOptions{});
  try {
    for (const std::string_view argument : std::span(argv, static_cast<std::size_t>(argc))) {
      if (argument.starts_with("--benchmark_enable_random_interleaving")) {
        throw shardmark::base::ConfigError(std::string(argument) + ": every rank would draw an order of its own; leave it out");
      }
    }
    benchmark::Initialize(&argc, argv);
    shardmark::comm::MpiCommunicator bare(shardmark::comm::CommHandle::duplicate(world), "world", {});
    auto stack = shardmark::comm::make_communicator(world, {});
    const Setting setting{world, bare, stack.communicator()};
    for (const std::int64_t bytes :
         {4LL << 10, 20LL << 10, 64LL << 10, 256LL << 10, 1LL << 20, 4LL << 20, 16LL << 20, 64LL << 20}) {
      register_size(bytes, setting);
    }
    if (world.rank() == 0) {
      benchmark::RunSpecifiedBenchmarks();
    } else {
      SilentReporter silent;
      benchmark::RunSpecifiedBenchmarks(&silent);
    }
    return 0;
  } catch (const std::exception& error) {
    shardmark::base::log_error(error.what());
    world.abort(shardmark::base::exit_code_of(error));
  }
}
