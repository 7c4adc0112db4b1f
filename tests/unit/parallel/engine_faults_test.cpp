// Faults of the engine that a test shows; over ranks that are threads, or one rank alone.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/counting_communicator.hpp"
#include "comm/self_communicator.hpp"
#include "device/memory_ledger.hpp"
#include "model/unit.hpp"
#include "parallel/flat_strategy.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::parallel {
namespace {

using model::Init;

constexpr std::int64_t kWidth = 24;

struct Shape {
  std::int64_t blocks = 3;
  bool head = false;        // a tensor of the root used after the blocks
  bool extra = false;       // a tensor of block 2 that no loss depends on
  bool empty_unit = false;  // a last unit of one empty tensor
  bool empty_first_unit = false;
  std::vector<std::int64_t> frozen{};  // units
  bool checkpointing = false;
  bool shared = false;  // blocks use a tensor of block 1 too
};

class Chain {
 public:
  explicit Chain(const Shape& shape) : shape_(shape) {
    if (shape.head) {
      head_ = &list.add("head", {kWidth, kWidth}, Init::normal(0, 0.2));
    }
    for (std::int64_t block = 1; block <= shape.blocks; ++block) {
      const std::string name = "block" + std::to_string(block);
      list.begin_unit(name);
      weights_.push_back(&list.add(name + ".weight", {kWidth, kWidth}, Init::normal(0, 0.2)));
      if (shape.extra && block == 2) {
        static_cast<void>(list.add(name + ".extra", {5}, Init::constant(1)));
      }
    }
    if (shape.empty_unit) {
      list.begin_unit("empty");
      nothing_ = &list.add("empty.tensor", {0, kWidth}, Init::constant(0));
    }
    for (auto& parameter : list.parameters()) {
      for (const auto unit : shape.frozen) {
        parameter.trainable = parameter.trainable && parameter.unit != unit;
      }
    }
    list.set_checkpointing(shape.checkpointing);
  }

  torch::Tensor loss(std::int64_t rows_from) {
    torch::Tensor x = torch::empty({4, kWidth});
    model::fill_initial({x.data_ptr<float>(), 4 * kWidth}, Init::normal(0, 1), 11, "x", rows_from * kWidth);
    const auto all = [&](const torch::Tensor& input) {
      torch::Tensor h = input;
      for (std::size_t i = 0; i < weights_.size(); ++i) {
        h = model::run_unit(
            list, static_cast<std::int64_t>(i) + 1, h,
            [this, i](const torch::Tensor& entered) {
              const auto& weight = shape_.shared ? weights_[0] : weights_[i];
              const torch::Tensor x_in = entered.to(weight->value.scalar_type());
              return x_in + at::tanh(at::linear(x_in, weight->value));
            },
            true);
      }
      if (nothing_ != nullptr) {
        h = model::run_unit(list, static_cast<std::int64_t>(weights_.size()) + 1, h,
                            [this](const torch::Tensor& entered) { return entered + nothing_->value.sum(); });
      }
      return head_ != nullptr ? at::linear(h.to(head_->value.scalar_type()), head_->value) : h;
    };
    return (head_ != nullptr ? model::run_unit(list, 0, x, all) : all(x)).to(at::kFloat).square().sum();
  }

  model::ParameterList list;

 private:
  Shape shape_;
  model::Parameter* head_ = nullptr;
  model::Parameter* nothing_ = nullptr;
  std::vector<model::Parameter*> weights_;
};

StrategyOptions sgd() {
  StrategyOptions options;
  options.optimizer.name = "sgd";
  return options;
}

void run_step(Strategy& strategy, Chain& chain, std::int64_t first_row, std::int64_t micro_steps = 1) {
  strategy.begin_step();
  for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
    strategy.begin_micro_step(micro);
    chain.loss(first_row + 4 * micro).backward();
    strategy.end_micro_step();
  }
  EXPECT_TRUE(strategy.finish_gradients().finite);
  strategy.update(0.01, 1);
  strategy.end_step();
}

/// Counted bytes of gradients and parameters of the second step less the predicted ones, on rank 0; and its parameters.
struct Outcome {
  double counted = 0;
  double predicted = 0;
  std::vector<NamedTensor> parameters;
};

Outcome run_on_threads(int ranks, const Shape& shape, const std::string& technique, const StrategyOptions& options) {
  Outcome outcome;
  testing::on_threads(ranks, [&](int rank, comm::Communicator& all) {
    auto counting = comm::CountingCommunicator(all.split(0, "world"));
    Chain chain(shape);
    const auto strategy = make_strategy(technique, options, counting);
    strategy->prepare(chain.list, {});
    run_step(*strategy, chain, rank * 100, options.micro_steps);
    counting.counts().reset();
    run_step(*strategy, chain, 1000 + rank * 100, options.micro_steps);
    double counted = 0;
    for (const auto& row : counting.counts().rows()) {
      if (row.purpose == comm::Purpose::gradient || row.purpose == comm::Purpose::parameter) {
        counted += row.wire_bytes;
      }
    }
    auto parameters = strategy->gather_parameters();
    if (rank == 0) {
      outcome = {counted, strategy->payload_per_step().bytes, std::move(parameters)};
    }
  });
  return outcome;
}

bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto left = a[i].values.contiguous();
    const auto right = b[i].values.contiguous();
    if (a[i].name != b[i].name || left.nbytes() != right.nbytes() ||
        std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) != 0) {
      return false;
    }
  }
  return true;
}

// The harness itself: every technique counts what it predicts, and all give the same bits under `ordered`.
TEST(Engine, TechniquesAgreeOverThreads) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t micro_steps : {1, 3}) {
      for (const bool no_sync : {false, true}) {
        StrategyOptions options = sgd();
        options.order = comm::SumOrder::ordered;
        options.micro_steps = micro_steps;
        options.no_sync = no_sync;
        const auto reference = run_on_threads(ranks, {}, "ddp", options);
        for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
          for (const bool checkpointing : {false, true}) {
            const auto found = run_on_threads(ranks, {.checkpointing = checkpointing}, technique, options);
            EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted) << technique << " at " << ranks;
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << technique << " at " << ranks;
          }
        }
      }
    }
  }
}

// Sharded parameters are made whole, all at once, while the strategy is prepared.
TEST(EngineFault, PreparingAShardedModelHoldsOneUnitWholeAtMost) {
  device::install_memory_ledger();
  comm::SelfCommunicator self;
  Chain chain({.blocks = 8});
  const auto strategy = make_strategy("zero3", sgd(), self);
  device::reset_memory_peaks();
  strategy->prepare(chain.list, {});
  const auto gathered = static_cast<std::size_t>(device::MemoryCategory::gathered);
  EXPECT_LE(device::memory_snapshot().run_peak[gathered], 4 * kWidth * kWidth);
}

// A unit with an unused tensor is not freed in backward: the budget is broken, and the run fails by an invariant.
TEST(EngineFault, UnusedParametersDoNotBreakTheBudget) {
  comm::SelfCommunicator self;
  Chain chain({.extra = true});
  StrategyOptions options = sgd();
  options.allow_unused = true;
  options.live_bytes = 4 * (kWidth * kWidth + 16);
  const auto strategy = make_strategy("zero3", options, self);
  strategy->prepare(chain.list, {});
  EXPECT_NO_THROW(run_step(*strategy, chain, 0));
}

// A pass that leaves the recorded order breaks the budget: what was gathered ahead stays.
TEST(EngineFault, ADeviationKeepsTheBudget) {
  GatherSchedule schedule({0, 10, 10, 10}, {.prefetch = 1, .prefetch_bytes = 0, .budget_bytes = 20});
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> dropped;
  const auto pass = [&](const std::vector<std::int64_t>& order) {
    for (const auto unit : order) {
      schedule.visit(unit, start, dropped);
      schedule.release(unit, start);
    }
    schedule.end_pass(start);
  };
  pass({1, 2, 3});
  EXPECT_NO_THROW(pass({1, 3, 2}));
  GatherSchedule tight({0, 10, 10, 10, 10}, {.prefetch = 2, .prefetch_bytes = 0, .budget_bytes = 20});
  for (const std::int64_t unit : {1, 2, 3, 4}) {
    tight.visit(unit, start, dropped);
    tight.release(unit, start);
  }
  tight.end_pass(start);
  tight.visit(1, start, dropped);
  tight.release(1, start);
  EXPECT_NO_THROW(tight.visit(4, start, dropped)) << "2 and 3 are held ahead and fill the budget";
}

// Hybrid under `ordered` with a narrow reduce type: partials must travel in fp32 and be rounded at the end only.
TEST(EngineFault, HybridPartialsTravelInFp32UnderOrdered) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  options.precision.reduce = base::DType::bf16;
  const auto reference = run_on_threads(4, {}, "fsdp", options);
  options.shard_group = 2;
  const auto hybrid = run_on_threads(4, {}, "fsdp", options);
  EXPECT_NEAR(hybrid.counted, hybrid.predicted, 1e-9 * hybrid.predicted);
  EXPECT_TRUE(same_bits(hybrid.parameters, reference.parameters)) << "contiguous groups of a power of two give the same bits";
}

TEST(EngineFault, HybridFp32GivesTheBitsOfPlainSharding) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  const auto reference = run_on_threads(4, {}, "fsdp", options);
  for (const std::int64_t share : {1, 2, 4}) {
    options.shard_group = share;
    const auto hybrid = run_on_threads(4, {}, "fsdp", options);
    EXPECT_NEAR(hybrid.counted, hybrid.predicted, 1e-9 * hybrid.predicted);
    EXPECT_TRUE(same_bits(hybrid.parameters, reference.parameters)) << share;
  }
}

// Two recomputed units use one tensor: its first gradient is lost without a word.
TEST(EngineFault, AGradientThatArrivesTwiceIsNotLost) {
  const auto plain = run_on_threads(1, {.shared = true}, "single", [] {
    auto options = sgd();
    options.allow_unused = true;
    return options;
  }());
  auto options = sgd();
  options.allow_unused = true;
  Outcome recomputed;
  try {
    recomputed = run_on_threads(1, {.checkpointing = true, .shared = true}, "single", options);
  } catch (const base::Error&) {
    return;  // refused: also good
  }
  EXPECT_TRUE(same_bits(plain.parameters, recomputed.parameters));
}

// Every bucket is a multiple of A x N elements in every technique.
TEST(EngineFault, GroupsOfAllTechniquesArePaddedToAllRanks) {
  const std::vector<ParameterFacts> facts{{100, 1, true}, {7, 2, true}, {31, 2, false}};
  StrategyOptions hybrid = sgd();
  hybrid.shard_group = 2;
  for (const Policy& policy : {ddp_policy(sgd(), 4), zero1_policy(sgd(), 4), fsdp_policy(hybrid, 4)}) {
    for (const auto& group : plan_groups(facts, policy, 16)) {
      EXPECT_EQ(group.layout.numel() % (16 * 4), 0) << group.layout.numel();
    }
  }
}

// A unit of empty tensors.
TEST(EngineFault, AnEmptyUnitTrains) {
  for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    const auto found = run_on_threads(4, {.empty_unit = true}, technique, sgd());
    EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
  }
}
TEST(EngineFault, AnEmptyUnitCanBeKeptInParts) {
  StrategyOptions options = sgd();
  options.after_forward = AfterForward::keep_part;
  options.parts = 2;
  const auto found = run_on_threads(4, {.empty_unit = true}, "fsdp", options);
  EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
}
TEST(EngineFault, AFaultCanBePlantedBesideAnEmptyUnit) {
  comm::SelfCommunicator self;
  Chain chain({.empty_unit = true});
  const auto strategy = make_strategy("zero3", sgd(), self);
  strategy->prepare(chain.list, {});
  const auto before = strategy->replica().hash;
  strategy->flip_bit(0);
  EXPECT_NE(strategy->replica().hash, before);
}

// Every after_forward choice, thresholds, precisions: counted as predicted, and the bits of ddp.
TEST(Engine, ChoicesOfFsdpAgreeOverThreads) {
  for (const auto& shape :
       {Shape{.head = true}, Shape{.head = true, .frozen = {0, 1}}, Shape{.frozen = {2}}, Shape{.frozen = {1}}}) {
    for (const auto compute : {base::DType::fp32, base::DType::bf16}) {
      StrategyOptions options = sgd();
      options.order = comm::SumOrder::ordered;
      options.micro_steps = 2;
      options.precision.compute = compute;
      options.precision.frozen = compute == base::DType::bf16 ? base::DType::fp32 : base::DType::bf16;
      const auto reference = run_on_threads(4, shape, "ddp", options);
      for (const auto choice : {AfterForward::free, AfterForward::keep, AfterForward::keep_part}) {
        for (const char* profile : {"native", "fsdp2"}) {
          options.after_forward = choice;
          options.parts = 2;
          options.profile = profile;
          const auto found = run_on_threads(4, shape, "fsdp", options);
          EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
          EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
        }
      }
      options.after_forward.reset();
      options.profile = "native";
      for (std::int64_t prefetch = 0; prefetch <= 3; ++prefetch) {
        for (const bool overlap : {true, false}) {
          for (const std::int64_t live : {0L, 4 * 2 * kWidth * kWidth * 2 + 4096}) {
            options.prefetch = prefetch;
            options.overlap = overlap;
            options.live_bytes = live;
            const auto found = run_on_threads(4, shape, prefetch % 2 == 0 ? "zero3" : "fsdp", options);
            EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << "prefetch " << prefetch << " overlap " << overlap;
          }
        }
      }
      options.overlap = true;
      options.live_bytes.reset();
      options.persistence_threshold = kWidth * kWidth + 1;
      const auto found = run_on_threads(4, shape, "zero3", options);
      EXPECT_NEAR(found.counted, found.predicted, 1e-9 * found.predicted);
      EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
    }
  }
}

}  // namespace
}  // namespace shardmark::parallel
