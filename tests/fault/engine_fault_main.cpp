// A small program that trains three blocks under any technique; in its third step the loss of the last rank depends on one
// weight less, if the first argument says so. For tests of how the others end.
//   engine_fault none|unused|unused-in-flight TECHNIQUE fast|ordered
// unused-in-flight: the last rank fails while a sum that it has started waits for the others, and unwinding frees its
// buffers. Not for zero3, whose backward gathers and so waits for the others.
// Exit codes: unused, unused-in-flight: 1; none: 0.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/factory.hpp"
#include "model/parameter.hpp"
#include "model/unit.hpp"
#include "parallel/strategy.hpp"
#include "tests/fault/fault_main.hpp"
#include "world/handles.hpp"

namespace {

namespace base = shardmark::base;
namespace comm = shardmark::comm;
namespace model = shardmark::model;
namespace parallel = shardmark::parallel;

// A megabyte a weight: once freed it goes back to the system, so that who still wrote there would crash.
constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kSteps = 4;
constexpr std::int64_t kFaultyStep = 2;  // buckets have been rebuilt, gathers follow the recorded order
constexpr double kDeadline_s = 40;       // far beyond any wait of a test
constexpr std::int64_t kUnused = 2;      // backward has met block 3 before it and meets block 1 after it

class Blocks {
 public:
  Blocks() {
    for (std::int64_t block = 1; block <= 3; ++block) {
      const std::string name = "block" + std::to_string(block);
      list.begin_unit(name);
      weights_.push_back(&list.add(name + ".weight", {kWidth, kWidth}, model::Init::normal(0, 0.02)));
    }
  }

  /// `unused`: a block that hands on what enters it; 0: none.
  torch::Tensor loss(std::int64_t unused) {
    torch::Tensor h = at::ones({2, kWidth});
    for (std::int64_t block = 1; block <= 3; ++block) {
      const auto& weight = weights_[static_cast<std::size_t>(block - 1)]->value;
      h = model::run_unit(list, block, h, [&](const torch::Tensor& entered) {
        return block == unused ? entered * 0.5 : entered + at::tanh(at::linear(entered, weight));
      });
    }
    return h.square().sum();
  }

  model::ParameterList list;

 private:
  std::vector<model::Parameter*> weights_;
};

struct Scenario {
  bool unused = false;
  bool in_flight = false;
  std::string technique;
  comm::SumOrder order = comm::SumOrder::fast;
};

Scenario parse(const std::vector<std::string>& arguments) {
  const auto is = [&](std::size_t place, const char* word) { return arguments.size() > place && arguments[place] == word; };
  if (!(is(0, "none") || is(0, "unused") || is(0, "unused-in-flight")) || !(is(2, "fast") || is(2, "ordered"))) {
    throw base::ConfigError("usage: engine_fault none|unused|unused-in-flight TECHNIQUE fast|ordered");
  }
  return {!is(0, "none"), is(0, "unused-in-flight"), arguments[1],
          is(2, "fast") ? comm::SumOrder::fast : comm::SumOrder::ordered};
}

void train(shardmark::world::World& world, const Scenario& scenario) {
  // Without the check a collective lends its buffers to MPI at once, not when all have agreed on it.
  auto stack = comm::make_communicator(world, {.check = !scenario.in_flight});
  Blocks blocks;
  parallel::StrategyOptions options;
  options.order = scenario.order;
  options.optimizer.name = "sgd";
  options.bucket_bytes = 4 * kWidth * kWidth;
  if (scenario.in_flight) {
    options.after_forward = parallel::AfterForward::keep;  // no gather in backward, for which the last rank would wait
  }
  const auto strategy = parallel::make_strategy(scenario.technique, options, stack.communicator());
  strategy->prepare(blocks.list, nullptr);
  const bool last = world.rank() == world.size() - 1;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const bool faulty = scenario.unused && step == kFaultyStep;
    strategy->begin_step();
    strategy->begin_micro_step(0);
    const torch::Tensor loss = blocks.loss(faulty && last ? kUnused : 0);
    const bool meet = faulty && scenario.in_flight;
    if (meet && !last) {
      world.barrier();  // starts no sum before the last rank has started one
    }
    loss.backward();
    if (meet && last) {
      SM_CHECK(world.handles().num_lent > 0, "nothing is in flight");
      world.barrier();
    }
    strategy->end_micro_step();
    static_cast<void>(strategy->finish_gradients());
    strategy->update(1e-3, 1);
    strategy->end_step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Scenario scenario;
  return shardmark::testing::run_in_faulty_world(
      [&] {
        scenario = parse({argv + 1, argv + argc});
        return shardmark::world::WorldOptions{.init_deadline_s = 30, .deadline_s = kDeadline_s};
      },
      [&](shardmark::world::World& world) { train(world, scenario); });
}
