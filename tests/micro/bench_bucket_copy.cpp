// A gradient's way into its flat bucket by size: copied (the first micro-step) and added (later ones).

#include <cstring>
#include <memory>
#include <vector>

#include "optim/vector_ops.hpp"
#include "tests/micro/ranks.hpp"

namespace {

/// `move` brings `count` floats from a gradient to its place in the bucket.
template <typename Move>
void add(const char* name, std::int64_t bytes, Move move) {
  benchmark::RegisterBenchmark(name,
                               [move](benchmark::State& state) {
                                 const auto size = static_cast<std::size_t>(state.range(0));
                                 const std::vector<float> gradient(size / sizeof(float), 1.0F);
                                 std::vector<float> bucket(gradient.size());
                                 // Some copies a batch where one is too short for the clock.
                                 const std::size_t copies = std::max<std::size_t>(1, (std::size_t{1} << 20U) / size);
                                 const double batch_s = shardmark::micro::median_of_batches(state, [&] {
                                   for (std::size_t i = 0; i < copies; ++i) {
                                     move(bucket, gradient);
                                     benchmark::ClobberMemory();
                                   }
                                 });
                                 const double one_s = batch_s / static_cast<double>(copies);
                                 state.counters["us_per_copy"] = one_s * 1e6;
                                 state.counters["GB_s"] = static_cast<double>(size) / one_s * 1e-9;
                               })
      ->Arg(bytes)
      ->Iterations(100)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    for (std::int64_t bytes = 256; bytes <= std::int64_t{16} << 20; bytes *= 4) {
      add("copy", bytes, [](std::vector<float>& bucket, const std::vector<float>& gradient) {
        std::memcpy(bucket.data(), gradient.data(), gradient.size() * sizeof(float));
      });
      add("add", bytes, [](std::vector<float>& bucket, const std::vector<float>& gradient) {
        shardmark::optim::add_in_place(bucket, gradient);
      });
    }
    shardmark::micro::run_registered(world);
  });
}
