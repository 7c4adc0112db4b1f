// Kernels over flat memory, by their number of elements: bytes per second that they read and write. Host builds run anywhere;
// device kernels, timed by events of the device, only where one is. Runs alone: kernels know no ranks.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "kernels/adam8bit.hpp"
#include "kernels/move.hpp"
#include "kernels/squares.hpp"
#include "kernels/step_control.hpp"
#include "kernels/tree_sum.hpp"
#include "kernels/update.hpp"
#include "tests/micro/ranks.hpp"
#ifdef SM_WITH_CUDA
#include "tests/support/device_memory.hpp"
#endif

namespace {

using namespace shardmark::kernels;  // what is measured
using shardmark::base::DType;

constexpr int kSources = 8;  // of a tree sum

/// One stretch of zeroed memory that holds what any kernel here needs for `count` elements, on the host or the device.
class Operands {
 public:
  Operands(std::byte* memory, std::int64_t count) : memory_(memory), count_(count) {}
  static std::size_t bytes(std::int64_t count) { return kHead + static_cast<std::size_t>(count) * 24; }

  [[nodiscard]] StepScalars* scalars() const { return reinterpret_cast<StepScalars*>(memory_); }
  [[nodiscard]] UpdateState* state() const { return reinterpret_cast<UpdateState*>(memory_ + 256); }
  [[nodiscard]] void* scratch() const { return memory_ + 1024; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Four arrays of fp32, then three of bf16; codes and scales lie over the last.
  [[nodiscard]] void* fp32(int index) const { return memory_ + kHead + index * 4 * count_; }
  [[nodiscard]] void* bf16(int index) const { return memory_ + kHead + (16 + index * 2) * count_; }

  [[nodiscard]] UpdateRange range() const { return {.parameters = fp32(0), .gradients = fp32(1), .count = count_}; }
  /// bf16 gradients and a working copy.
  [[nodiscard]] UpdateRange mixed_range() const {
    return {.parameters = fp32(0), .gradients = bf16(0), .gradients_type = DType::bf16, .working = bf16(1), .count = count_};
  }
  [[nodiscard]] AdamMoments moments() const { return {fp32(2), fp32(3)}; }
  [[nodiscard]] Adam8bitMoments codes() const {
    auto* scales = static_cast<float*>(bf16(2));
    auto* codes = static_cast<std::int8_t*>(bf16(1));
    return {codes, reinterpret_cast<std::uint8_t*>(codes + count_), scales, scales + count_ / kAdam8bitBlock};
  }
  /// Eight arrays of bf16 where the four of fp32 lie.
  [[nodiscard]] std::vector<const void*> sources() const {
    std::vector<const void*> list;
    for (int s = 0; s < kSources; ++s) {
      list.push_back(memory_ + kHead + s * 2 * count_);
    }
    return list;
  }
  [[nodiscard]] Move move(int into_bf16, bool add) const {
    return {.into = into_bf16 != 0 ? bf16(0) : fp32(0),
            .into_type = into_bf16 != 0 ? DType::bf16 : DType::fp32,
            .from = into_bf16 != 0 ? fp32(0) : bf16(0),
            .from_type = into_bf16 != 0 ? DType::fp32 : DType::bf16,
            .count = count_,
            .add = add};
  }

 private:
  static constexpr std::size_t kHead = 16 * 1024;
  std::byte* memory_;
  std::int64_t count_;
};

struct Kernel {
  std::string name;
  double bytes = 0;  // an element, read and written
  std::function<void(const Operands&)> run;
};

const AdamRule kAdam{.lr = 1e-3, .weight_decay = 0.1};
const SgdRule kSgd{.lr = 1e-3, .momentum = 0.9};
const Adam8bitStep kAdam8bit{.lr = 1e-3F, .weight_decay = 0.1F};
constexpr double kAdam8bitBytes = 8 + 4 + 2 * 2 + 16.0 / kAdam8bitBlock;

std::vector<Kernel> host_kernels() {
  return {
      {"sum_of_squares_fp32", 4, [](const Operands& o) { sum_of_squares(o.fp32(0), DType::fp32, o.count(), o.scalars()); }},
      {"sum_of_squares_bf16", 2, [](const Operands& o) { sum_of_squares(o.bf16(0), DType::bf16, o.count(), o.scalars()); }},
      {"largest_magnitude_fp32", 4,
       [](const Operands& o) { largest_magnitude(o.fp32(0), DType::fp32, o.count(), o.scalars()); }},
      {"exact_sum_of_squares_fp32", 4,
       [](const Operands& o) { exact_sum_of_squares(o.fp32(0), DType::fp32, o.count(), o.scalars()); }},
      {"move_fp32_to_bf16", 6, [](const Operands& o) { move_scaled(o.move(1, false)); }},
      {"move_bf16_to_fp32", 6, [](const Operands& o) { move_scaled(o.move(0, false)); }},
      {"move_add_bf16", 10, [](const Operands& o) { move_scaled(o.move(0, true)); }},
      {"adamw_fp32", 28, [](const Operands& o) { adamw_update(o.range(), o.moments(), kAdam, o.state()); }},
      {"adamw_bf16_gradients_and_copy", 28,
       [](const Operands& o) { adamw_update(o.mixed_range(), o.moments(), kAdam, o.state()); }},
      {"sgd_fp32", 20, [](const Operands& o) { sgd_update(o.range(), o.fp32(2), DType::fp32, kSgd, o.state()); }},
      {"adam8bit_fp32", kAdam8bitBytes, [](const Operands& o) { adam8bit_update(o.range(), o.codes(), kAdam8bit, o.state()); }},
      {"tree_sum_bf16_of_8", 2 * kSources + 2,
       [](const Operands& o) {
         tree_reduce(o.sources().data(), kSources, o.bf16(0), o.count(), DType::bf16, TreeOperation::sum);
       }},
  };
}

/// Sets the step's numbers so that updates apply.
UpdateState applying() {
  return {.steps = 10, .applies = 1, .coefficient = 0.5F, .bias_correction1 = 0.65, .bias_correction2 = 0.01};
}

void report(benchmark::State& state, const Kernel& kernel, std::int64_t count, double one_s) {
  state.counters["us"] = one_s * 1e6;
  state.counters["GB_s"] = kernel.bytes * static_cast<double>(count) / one_s * 1e-9;
}

void add_host_kernels() {
  for (const Kernel& kernel : host_kernels()) {
    for (const std::int64_t count : {1 << 12, 1 << 16, 1 << 20, 1 << 22}) {
      benchmark::RegisterBenchmark(("host/" + kernel.name).c_str(),
                                   [kernel](benchmark::State& state) {
                                     const std::int64_t elements = state.range(0);
                                     std::vector<std::byte> memory(Operands::bytes(elements) + 64);
                                     void* start = memory.data();
                                     std::size_t space = memory.size();
                                     const Operands operands(static_cast<std::byte*>(std::align(64, space - 64, start, space)),
                                                             elements);
                                     *operands.state() = applying();
                                     // Some calls a batch where one is too short for the clock.
                                     const std::int64_t calls = std::max<std::int64_t>(1, (1 << 18) / elements);
                                     const double batch_s = shardmark::micro::median_of_batches(state, [&] {
                                       for (std::int64_t i = 0; i < calls; ++i) {
                                         kernel.run(operands);
                                         benchmark::ClobberMemory();
                                       }
                                     });
                                     report(state, kernel, elements, batch_s / static_cast<double>(calls));
                                   })
          ->Arg(count)
          ->Iterations(10)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

#ifdef SM_WITH_CUDA
using shardmark::testing::check_cuda;

std::vector<Kernel> device_kernels() {
  return {
      {"sum_of_squares_fp32", 4,
       [](const Operands& o) { sum_of_squares_device(o.fp32(0), DType::fp32, o.count(), o.scalars(), o.scratch(), nullptr); }},
      {"sum_of_squares_bf16", 2,
       [](const Operands& o) { sum_of_squares_device(o.bf16(0), DType::bf16, o.count(), o.scalars(), o.scratch(), nullptr); }},
      {"largest_magnitude_fp32", 4,
       [](const Operands& o) { largest_magnitude_device(o.fp32(0), DType::fp32, o.count(), o.scalars(), nullptr); }},
      {"exact_sum_of_squares_fp32", 4,
       [](const Operands& o) { exact_sum_of_squares_device(o.fp32(0), DType::fp32, o.count(), o.scalars(), nullptr); }},
      {"move_fp32_to_bf16", 6, [](const Operands& o) { move_scaled_device(o.move(1, false), nullptr); }},
      {"move_bf16_to_fp32", 6, [](const Operands& o) { move_scaled_device(o.move(0, false), nullptr); }},
      {"move_add_bf16", 10, [](const Operands& o) { move_scaled_device(o.move(0, true), nullptr); }},
      {"adamw_fp32", 28, [](const Operands& o) { adamw_update_device(o.range(), o.moments(), kAdam, o.state(), nullptr); }},
      {"adamw_bf16_gradients_and_copy", 28,
       [](const Operands& o) { adamw_update_device(o.mixed_range(), o.moments(), kAdam, o.state(), nullptr); }},
      {"sgd_fp32", 20,
       [](const Operands& o) { sgd_update_device(o.range(), o.fp32(2), DType::fp32, kSgd, o.state(), nullptr); }},
      {"adam8bit_fp32", kAdam8bitBytes,
       [](const Operands& o) { adam8bit_update_device(o.range(), o.codes(), kAdam8bit, o.state(), nullptr); }},
      {"tree_sum_bf16_of_8", 2 * kSources + 2,
       [](const Operands& o) {
         tree_reduce_device(o.sources().data(), kSources, o.bf16(0), o.count(), DType::bf16, TreeOperation::sum, nullptr);
       }},
  };
}

/// Times events of the default stream.
class DeviceClock {
 public:
  DeviceClock() {
    check_cuda(cudaEventCreate(&start_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock() {
    static_cast<void>(cudaEventDestroy(start_));
    static_cast<void>(cudaEventDestroy(end_));
  }
  /// Seconds of what `enqueue` enqueues.
  template <typename Enqueue>
  double seconds(Enqueue&& enqueue) {
    check_cuda(cudaEventRecord(start_), "cudaEventRecord");
    enqueue();
    check_cuda(cudaEventRecord(end_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_, end_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

void time_on_device(benchmark::State& state, const Kernel& kernel) {
  constexpr int kCalls = 20;  // a batch: events resolve half a microsecond
  const std::int64_t elements = state.range(0);
  const shardmark::testing::ZeroedDeviceBytes memory(Operands::bytes(elements));
  const Operands operands(static_cast<std::byte*>(memory.data()), elements);
  const UpdateState numbers = applying();
  check_cuda(cudaMemcpy(operands.state(), &numbers, sizeof numbers, cudaMemcpyHostToDevice), "cudaMemcpy");
  DeviceClock clock;
  const auto batch = [&] {
    for (int i = 0; i < kCalls; ++i) {
      kernel.run(operands);
    }
  };
  static_cast<void>(clock.seconds(batch));
  std::vector<double> times_s;
  for (auto _ : state) {
    times_s.push_back(clock.seconds(batch) / kCalls);
    state.SetIterationTime(times_s.back());
  }
  std::ranges::sort(times_s);
  report(state, kernel, elements, times_s[times_s.size() / 2]);
}

void add_device_kernels() {
  if (const std::string reason = shardmark::testing::why_no_device(); !reason.empty()) {
    shardmark::base::log_info("device kernels are not measured: " + reason);
    return;
  }
  for (const Kernel& kernel : device_kernels()) {
    for (const std::int64_t count : {1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28}) {
      benchmark::RegisterBenchmark(("device/" + kernel.name).c_str(),
                                   [kernel](benchmark::State& state) { time_on_device(state, kernel); })
          ->Arg(count)
          ->Iterations(10)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}
#else
void add_device_kernels() {
  shardmark::base::log_info("device kernels are not measured: this build has no CUDA");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    if (world.size() > 1) {
      throw shardmark::base::ConfigError("bench_kernels measures one process: start it without mpirun");
    }
    add_host_kernels();
    add_device_kernels();
    shardmark::micro::run_registered(world);
  });
}
