// All-reduce by size: ours beside plain MPI_Allreduce, in turn, under mpirun. `--bytes=N,N,...` names other sizes than the
// usual ones.

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "comm/factory.hpp"
#include "comm/mpi_communicator.hpp"
#include "tests/micro/ranks.hpp"

namespace {

using shardmark::comm::Buffer;
using shardmark::comm::Communicator;
using shardmark::comm::Purpose;
using shardmark::comm::SumOrder;

struct Setting {
  int num_ranks;
  Communicator& bare;
  Communicator& checked;  // and counted: what a run uses
};

template <typename Reduce>
void measure(benchmark::State& state, const Setting& setting, Reduce&& reduce) {
  const auto bytes = static_cast<std::int64_t>(state.range(0));
  std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  reduce(data);
  const auto expected = static_cast<float>(setting.num_ranks);
  const bool wrong = std::ranges::any_of(data, [&](float value) { return value != expected; });
  if (shardmark::micro::largest(wrong ? 1 : 0) > 0) {  // decided once for all ranks
    state.SkipWithError("wrong sum");
    return;
  }
  std::ranges::fill(data, 0.0F);
  const double median_s = shardmark::micro::median_of_batches(state, [&] { reduce(data); });
  state.counters["median_us"] = median_s * 1e6;
  state.counters["algbw_GB_s"] = static_cast<double>(bytes) / median_s * 1e-9;
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
  const auto sum_with = [](Communicator& communicator) {
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

/// The sizes that `--bytes=` names, else the usual ones. Throws ConfigError for anything else.
std::vector<std::int64_t> sizes_of(std::span<char* const> arguments) {
  constexpr std::string_view kFlag = "--bytes=";
  std::vector<std::int64_t> sizes;
  for (std::string_view argument : arguments) {
    const std::string whole(argument);
    bool good = argument.starts_with(kFlag);
    argument.remove_prefix(good ? kFlag.size() : 0);
    while (good && !argument.empty()) {
      const std::string_view word = argument.substr(0, argument.find(','));
      argument.remove_prefix(std::min(argument.size(), word.size() + 1));
      const auto [end, error] = std::from_chars(word.begin(), word.end(), sizes.emplace_back());
      good = error == std::errc{} && end == word.end() && sizes.back() >= 4 && sizes.back() % 4 == 0;
    }
    if (!good || sizes.empty()) {
      throw shardmark::base::ConfigError(whole +
                                         ": accepted are flags of Google Benchmark and --bytes=N,N,... with multiples of 4");
    }
  }
  if (sizes.empty()) {
    sizes = {4LL << 10, 20LL << 10, 64LL << 10, 256LL << 10, 1LL << 20, 4LL << 20, 16LL << 20, 64LL << 20};
  }
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    const auto sizes = sizes_of(arguments);
    shardmark::comm::MpiCommunicator bare(shardmark::comm::CommHandle::duplicate(world), "world", {});
    auto stack = shardmark::comm::make_communicator(world, {});
    for (const std::int64_t bytes : sizes) {
      register_size(bytes, {world.size(), bare, stack.communicator()});
    }
    shardmark::micro::run_registered(world);
  });
}
