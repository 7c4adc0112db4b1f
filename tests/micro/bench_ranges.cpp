// What a range for profilers costs where no profiler is: beside an empty loop, which costs as much as its counter.

#include "device/ranges.hpp"
#include "tests/micro/ranks.hpp"

namespace {

constexpr int kRanges = 100'000;

template <typename Body>
void add(const char* name, Body body) {
  benchmark::RegisterBenchmark(name,
                               [body](benchmark::State& state) {
                                 const double batch_s = shardmark::micro::median_of_batches(state, [&] {
                                   for (int i = 0; i < kRanges; ++i) {
                                     body();
                                     benchmark::ClobberMemory();
                                   }
                                 });
                                 state.counters["ns"] = batch_s / kRanges * 1e9;
                               })
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    add("loop/empty", [] {});
    add("loop/range", [] { const shardmark::device::Range range("forward"); });
    add("loop/nested", [] {
      const shardmark::device::Range outer("step");
      const shardmark::device::Range inner("forward");
    });
    shardmark::micro::run_registered(world);
  });
}
