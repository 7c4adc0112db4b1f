// The engine of all techniques over ranks that are threads: every technique and choice gives the bits of ddp under `ordered`,
// and moves exactly the bytes that its formula says.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "comm/counting_communicator.hpp"
#include "model/unit.hpp"
#include "parallel/flat_strategy.hpp"
#include "tests/support/threads.hpp"

namespace shardmark::parallel {
namespace {

using model::Init;

constexpr std::int64_t kWidth = 24;
/// Fewer than 200 terms are added in double on either side.
constexpr double kRounding = 200 * 0x1p-53;

struct Shape {
  std::int64_t blocks = 3;
  bool head = false;                   // a tensor of the root used after the blocks
  bool empty_unit = false;             // a last unit of one empty tensor
  std::vector<std::int64_t> frozen{};  // units
  bool checkpointing = false;
};

class Chain {
 public:
  explicit Chain(const Shape& shape) {
    if (shape.head) {
      head_ = &list.add("head", {kWidth, kWidth}, Init::normal(0, 0.2));
    }
    for (std::int64_t block = 1; block <= shape.blocks; ++block) {
      const std::string name = "block" + std::to_string(block);
      list.begin_unit(name);
      weights_.push_back(&list.add(name + ".weight", {kWidth, kWidth}, Init::normal(0, 0.2)));
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
              const auto* weight = weights_[i];
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

/// Of rank 0: counted and predicted bytes of gradients and parameters in the second step, and the parameters after it.
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

TEST(EngineOverThreads, TechniquesAgree) {
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
            EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted) << technique << " at " << ranks;
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << technique << " at " << ranks;
          }
        }
      }
    }
  }
}

TEST(EngineOverThreads, HybridGivesTheBitsOfPlainSharding) {
  StrategyOptions options = sgd();
  options.order = comm::SumOrder::ordered;
  const auto reference = run_on_threads(4, {}, "fsdp", options);
  for (const std::int64_t share : {1, 2, 4}) {
    options.shard_group = share;
    const auto hybrid = run_on_threads(4, {}, "fsdp", options);
    EXPECT_NEAR(hybrid.counted, hybrid.predicted, kRounding * hybrid.predicted);
    EXPECT_TRUE(same_bits(hybrid.parameters, reference.parameters)) << share;
  }
}

TEST(EngineOverThreads, AUnitOfEmptyTensorsTrains) {
  for (const char* technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    const auto found = run_on_threads(4, {.empty_unit = true}, technique, sgd());
    EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
  }
}
TEST(EngineOverThreads, ChoicesAgree) {
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
          EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
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
            EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
            EXPECT_TRUE(same_bits(found.parameters, reference.parameters)) << "prefetch " << prefetch << " overlap " << overlap;
          }
        }
      }
      options.overlap = true;
      options.live_bytes.reset();
      options.persistence_threshold = kWidth * kWidth + 1;
      const auto found = run_on_threads(4, shape, "zero3", options);
      EXPECT_NEAR(found.counted, found.predicted, kRounding * found.predicted);
      EXPECT_TRUE(same_bits(found.parameters, reference.parameters));
    }
  }
}

}  // namespace
}  // namespace shardmark::parallel
