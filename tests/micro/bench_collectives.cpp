// Collectives by size of the whole buffer, under mpirun: our all-reduce beside plain MPI_Allreduce, in turn, then our
// reduce-scatter and all-gather. `--bytes=N,N,...` names other sizes than the usual ones.

#include <algorithm>
#include <charconv>
#include <functional>
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

using Floats = std::vector<float>;

/// `run` is called with the buffer that is sent, the whole one of `count` elements where `sends_whole`, and with the one that
/// is received, whole where `receives_whole`; the other is the rank's part. In place where both are whole.
struct Shape {
  bool sends_whole;
  bool receives_whole;
};
using Run = std::function<void(Floats& send, Floats& receive)>;

void measure(benchmark::State& state, const Setting& setting, Shape shape, float expected, const Run& run) {
  const auto ranks = static_cast<std::int64_t>(setting.num_ranks);
  const auto bytes = static_cast<std::int64_t>(state.range(0));
  // Parts are equal: a size that the ranks do not divide is measured a few elements larger.
  const bool in_parts = !shape.sends_whole || !shape.receives_whole;
  const std::int64_t count = in_parts ? (bytes / 4 + ranks - 1) / ranks * ranks : bytes / 4;
  const auto elements = [&](bool whole) { return static_cast<std::size_t>(whole ? count : count / ranks); };
  Floats send(elements(shape.sends_whole), 1.0F);
  Floats receive(in_parts ? elements(shape.receives_whole) : 0);
  run(send, receive);
  const bool wrong = std::ranges::any_of(in_parts ? receive : send, [&](float value) { return value != expected; });
  if (shardmark::micro::largest(wrong ? 1 : 0) > 0) {  // decided once for all ranks
    state.SkipWithError("wrong values");
    return;
  }
  std::ranges::fill(send, 0.0F);
  const double median_s = shardmark::micro::median_of_batches(state, [&] { run(send, receive); });
  state.counters["median_us"] = median_s * 1e6;
  state.counters["algbw_GB_s"] = static_cast<double>(bytes) / median_s * 1e-9;
}

Buffer buffer_of(Floats& data) {
  return {data.data(), static_cast<std::int64_t>(data.size())};
}

void register_size(std::int64_t bytes, const Setting& setting) {
  const std::int64_t iterations = std::clamp<std::int64_t>((256LL << 20) / bytes, 10, 1000);
  const auto add = [&](const char* name, Shape shape, float expected, const Run& run) {
    benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { measure(state, setting, shape, expected, run); })
        ->Arg(bytes)
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  const auto sum_with = [](Communicator& communicator) {
    return [&communicator](Floats& data, Floats& /*unused*/) {
      communicator.all_reduce(buffer_of(data), Purpose::gradient, 0, SumOrder::ordered).wait();
    };
  };
  const auto ranks = static_cast<float>(setting.num_ranks);
  constexpr Shape kWhole{true, true};
  add("all_reduce", kWhole, ranks, sum_with(setting.bare));
  add("MPI_Allreduce", kWhole, ranks, [](Floats& data, Floats& /*unused*/) {
    if (MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
      throw std::runtime_error("MPI_Allreduce failed");
    }
  });
  add("all_reduce checked", kWhole, ranks, sum_with(setting.checked));
  Communicator& bare = setting.bare;
  add("reduce_scatter", {.sends_whole = true, .receives_whole = false}, ranks, [&bare](Floats& send, Floats& receive) {
    bare.reduce_scatter(buffer_of(send), buffer_of(receive), Purpose::gradient, 0, SumOrder::ordered).wait();
  });
  add("all_gather", {.sends_whole = false, .receives_whole = true}, 1.0F, [&bare](Floats& send, Floats& receive) {
    bare.all_gather(buffer_of(send), buffer_of(receive), Purpose::parameter, 0).wait();
  });
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
