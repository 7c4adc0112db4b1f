// What one event of measuring costs: the same thing with and without what a run adds to it. Counter ns_per_event is the
// median over batches; scripts/speed.py takes differences and multiplies them by the events of a step.

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <array>
#include <memory>
#include <vector>

#include "base/trace.hpp"
#include "comm/counting_communicator.hpp"
#include "comm/dry_run_communicator.hpp"
#include "comm/self_communicator.hpp"
#include "device/memory_ledger.hpp"
#include "metrics/recorder.hpp"
#include "tests/micro/ranks.hpp"

namespace {

using shardmark::comm::Buffer;
using shardmark::comm::Communicator;
using shardmark::comm::CountingCommunicator;
using shardmark::comm::DryRunCommunicator;
using shardmark::comm::Purpose;
using shardmark::comm::SelfCommunicator;

constexpr std::int64_t kEvents = 1000;  // in one batch

/// Registers a benchmark of `event`, called kEvents times a batch with the event's number.
template <typename Event>
void add(const std::string& name, Event event, std::int64_t events = kEvents) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [event, events](benchmark::State& state) mutable {
                                 const double batch_s = shardmark::micro::median_of_batches(state, [&] {
                                   for (std::int64_t i = 0; i < events; ++i) {
                                     event(i);
                                   }
                                 });
                                 state.counters["ns_per_event"] = batch_s / static_cast<double>(events) * 1e9;
                               })
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Start and wait of one all-reduce that moves nothing. Sizes change, as those of buckets do: the counting decorator looks
/// up a row for each.
void add_collective(const std::string& name, std::shared_ptr<Communicator> communicator) {
  auto data = std::make_shared<std::vector<float>>(4096);
  add("collective, " + name, [communicator, data](std::int64_t i) {
    const Buffer buffer{data->data(), 1024 * (1 + i % 4)};
    communicator->all_reduce(buffer, Purpose::gradient, i % 4).wait();
  });
}

/// A group whose collectives never end: a dry run's are over at once, and progress with nothing in flight measures nothing.
class Endless final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] shardmark::comm::Ticket start(const shardmark::comm::Collective& /*collective*/) override { return 1; }
  [[nodiscard]] bool test(shardmark::comm::Ticket /*ticket*/) override { return false; }
  void wait(shardmark::comm::Ticket /*ticket*/) override {}
  void progress() override {}
  [[nodiscard]] std::unique_ptr<Communicator> split(int /*color*/, const std::string& /*name*/) override {
    return std::make_unique<Endless>();
  }

 private:
  std::string name_ = "world";
};

/// Progress between pieces of computation while a collective is in flight.
void add_progress(const std::string& name, std::shared_ptr<Communicator> communicator) {
  auto data = std::make_shared<std::vector<float>>(64);
  shardmark::comm::Collective collective;
  collective.operation = shardmark::comm::Operation::all_reduce;
  collective.receive = {data->data(), 64};
  static_cast<void>(communicator->start(collective));
  add("progress, " + name, [communicator, data](std::int64_t /*i*/) { communicator->progress(); });
}

void add_communicators() {
  add_collective("bare self", std::make_shared<SelfCommunicator>());
  add_collective("counted self", std::make_shared<CountingCommunicator>(std::make_unique<SelfCommunicator>()));
  add_collective("bare dry run", std::make_shared<DryRunCommunicator>(0, 2));
  add_collective("counted dry run", std::make_shared<CountingCommunicator>(std::make_unique<DryRunCommunicator>(0, 2)));
  add_progress("bare", std::make_shared<Endless>());
  add_progress("counted", std::make_shared<CountingCommunicator>(std::make_unique<Endless>()));
}

/// What output.trace adds: an event of the trainer with its two readings of the clock, and a collective with its wait (beside
/// "collective, counted dry run"). The trace holds the events of all batches: what it drops costs less.
void add_trace() {
  auto trace = std::make_shared<shardmark::base::Trace>();
  const auto name = trace->intern("phase");
  add("trace event", [trace, name](std::int64_t /*i*/) {
    const double start_s = shardmark::base::now_s();
    trace->add(shardmark::base::TraceKind::phase, name, start_s, shardmark::base::now_s());
    SM_CHECK(trace->num_dropped() == 0, "the trace is full");
  });
  auto counting = std::make_shared<CountingCommunicator>(std::make_unique<DryRunCommunicator>(0, 2));
  auto of_collectives = std::make_shared<shardmark::base::Trace>();
  counting->counts().set_trace(of_collectives.get());
  // The trace lives as long as what makes its events.
  add_collective("traced dry run", std::shared_ptr<Communicator>(counting.get(), [counting, of_collectives](Communicator*) {}));
}

void add_allocations() {
  for (const std::size_t bytes : {std::size_t{256}, std::size_t{64} << 10U, std::size_t{1} << 20U}) {
    const auto with = [bytes](c10::Allocator* allocator) {
      return [allocator, bytes](std::int64_t /*i*/) {
        const c10::DataPtr block = allocator->allocate(bytes);
        benchmark::DoNotOptimize(block.get());
      };
    };
    add("allocation, default, " + std::to_string(bytes) + " bytes", with(c10::GetDefaultCPUAllocator()));
    add("allocation, ledger, " + std::to_string(bytes) + " bytes", with(c10::GetAllocator(c10::DeviceType::CPU)));
  }
}

/// What the trainer does once a step for its row. Rows are gathered at block borders, which no step contains; the gathering
/// of this benchmark, after every 100 rows, is part of its time.
void add_row() {
  auto communicator = std::make_shared<SelfCommunicator>();
  auto recorder = std::make_shared<shardmark::metrics::Recorder>(*communicator, nullptr);
  add("step row", [communicator, recorder](std::int64_t i) {
    shardmark::record::StepRow row;
    row.step = i;
    row.peak_bytes = shardmark::device::take_step_peak_bytes();
    row.total_s = shardmark::base::now_s();
    recorder->add(row);
    if (i % 100 == 99) {
      recorder->end_block();
    }
  });
}

struct CountCalls final : torch::autograd::FunctionPostHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    benchmark::DoNotOptimize(++calls);
    return outputs;
  }
  std::int64_t calls = 0;
};

/// Backward of a sum over a small leaf, with and without a hook on its gradient. A technique's cost, not one of measuring.
void add_gradient_hook(bool hooked) {
  const auto leaf = at::ones({16}, at::kFloat).requires_grad_(true);
  const auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
  if (hooked) {
    accumulator->add_post_hook(std::make_unique<CountCalls>());
  }
  const auto event = [leaf, accumulator](std::int64_t /*i*/) {
    leaf.sum().backward();
    leaf.mutable_grad().reset();
  };
  add(hooked ? "backward of one leaf, hooked" : "backward of one leaf, bare", event, 100);
}

/// Counts on the way to another allocator. Installed for the length of a scope, one thread.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetAllocator(c10::DeviceType::CPU)) { install(this); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;
  ~CountingAllocator() override { install(inner_); }
  c10::DataPtr allocate(std::size_t bytes) override {
    ++count_;
    return inner_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    inner_->copy_data(destination, source, bytes);
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  static void install(c10::Allocator* allocator) {
    c10::SetAllocator(c10::DeviceType::CPU, allocator, 1);  // the ledger's priority: the last of equals holds
  }
  c10::Allocator* inner_;
  std::int64_t count_ = 0;
};

/// Allocations of forward and backward of a perceptron with `hidden` hidden layers, which do not depend on its widths:
/// counter `allocations`.
void add_perceptron_step(std::int64_t hidden) {
  constexpr std::int64_t kWidth = 16;
  std::vector<std::array<torch::Tensor, 2>> layers;
  for (std::int64_t layer = 0; layer <= hidden; ++layer) {
    layers.push_back(
        {at::ones({kWidth, kWidth}, at::kFloat).requires_grad_(true), at::ones({kWidth}, at::kFloat).requires_grad_(true)});
  }
  const auto step = [layers] {
    torch::Tensor x_NI = at::empty({4, kWidth}, at::kFloat).fill_(1);
    const torch::Tensor labels_N = at::empty({4}, at::kLong).fill_(1);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      x_NI = at::linear(x_NI, layers[layer][0], layers[layer][1]);
      if (layer + 1 < layers.size()) {
        x_NI = at::relu(x_NI);
      }
    }
    at::cross_entropy_loss(x_NI, labels_N, {}, at::Reduction::Sum, -100).backward();
    for (const auto& layer : layers) {
      for (const auto& value : layer) {
        value.mutable_grad().reset();
      }
    }
  };
  const auto name = "perceptron step, " + std::to_string(hidden) + " hidden layers";
  benchmark::RegisterBenchmark(name.c_str(),
                               [step](benchmark::State& state) {
                                 step();
                                 const CountingAllocator counting;
                                 for (auto _ : state) {
                                   const double start_s = shardmark::base::now_s();
                                   step();
                                   state.SetIterationTime(shardmark::micro::largest(shardmark::base::now_s() - start_s));
                                 }
                                 state.counters["allocations"] =
                                     static_cast<double>(counting.count()) / static_cast<double>(state.iterations());
                               })
      ->Iterations(20)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  shardmark::device::install_memory_ledger();
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    at::set_num_threads(1);
    add("clock reading", [](std::int64_t /*i*/) { benchmark::DoNotOptimize(shardmark::base::now_s()); });
    add_communicators();
    add_trace();
    add_allocations();
    add_row();
    add_gradient_hook(false);
    add_gradient_hook(true);
    add_perceptron_step(4);
    shardmark::micro::run_registered(world);
  });
}
