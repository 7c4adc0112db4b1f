// The whole trainer over NCCL's interface, as on a device, where the host waits for nothing within a step: the same bits as
// over MPI in ordered mode under every technique, and the host keeps its word.

#include <gtest/gtest.h>

#include <ATen/record_function.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/parallel/nccl/counting_device.hpp"
#include "tests/parallel/nccl/training.hpp"
#include "train/proof.hpp"

namespace shardmark::testing {
namespace {

struct Case {
  std::string preset;
  Sets sets;
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.preset; }
};

class Trained : public ::testing::TestWithParam<Case> {};

TEST_P(Trained, HasTheBitsOfMpi) {
  set_up_program();
  const auto config = configured(GetParam().preset, GetParam().sets);
  if (config.technique.name == "single" && test_world().size() > 1) {
    GTEST_SKIP() << "one rank only";
  }
  auto over_mpi = comm::make_communicator(test_world(), {});
  const auto expected = train_over(over_mpi, config);
  const auto device = device::make_host_device(true);
  auto over_nccl = nccl_stack(*device);
  EXPECT_EQ(over_nccl.backend(), "nccl");
  const auto before = nccl_calls();
  const auto found = train_over(over_nccl, config);
  EXPECT_GT(nccl_calls().collectives, before.collectives);
  const auto& measure = config.measure;
  EXPECT_EQ(static_cast<std::int64_t>(found.losses.size()), measure.warmup_steps + measure.steps * measure.blocks);
  for (const auto& check : train::compare_bits(expected, found)) {
    EXPECT_ON_ALL_RANKS(check.passed) << check.name << ": " << check.found << " differ";
  }
  for (const auto& check : found.outcome.checks) {
    EXPECT_ON_ALL_RANKS(check.passed) << check.name << ": expected " << check.expected << ", found " << check.found;
  }
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const std::string preset : {"mlp-digits", "lm10m-tiny"}) {
    for (const std::string technique : {"single", "ddp", "zero1", "zero2", "zero3", "fsdp"}) {
      cases.push_back({preset, {"technique.name=" + technique}});
      cases.push_back(
          {preset, {"technique.name=" + technique, "data.accumulation=3", "precision.compute=bf16", "precision.reduce=bf16"}});
      cases.push_back({preset,
                       {"technique.name=" + technique, "data.accumulation=3", "technique.accumulation=no_sync",
                        "model.activation_checkpointing=true", "technique.overlap=false"}});
    }
    cases.push_back({preset, {"technique.name=zero3", "technique.persistence_threshold=100", "technique.offload=optimizer"}});
    cases.push_back({preset, {"technique.name=fsdp", "technique.profile=fsdp2", "optimizer.name=adamw8bit"}});
    cases.push_back({preset, {"technique.name=fsdp", "technique.reshard_after_forward=false", "optimizer.name=sgd"}});
  }
  for (const std::string technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    cases.push_back({"transformer10m-tiny", {"technique.name=" + technique}});
    cases.push_back({"two-tower-tiny", {"technique.name=" + technique}});
    // A step of it takes as long as a hundred of the others.
    cases.push_back({"retinanet-tiny",
                     {"technique.name=" + technique, "data.global_batch=12", "measure.warmup_steps=1", "measure.steps=1",
                      "measure.blocks=1"}});
  }
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& one) {
  std::string name = one.param.preset;
  for (const auto& set : one.param.sets) {
    name.append("_").append(set, set.find('=') + 1);
  }
  std::ranges::replace_if(
      name, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '_');
  return name.append("_").append(std::to_string(one.index));
}

INSTANTIATE_TEST_SUITE_P(Techniques, Trained, ::testing::ValuesIn(cases()), name_of_case);

TEST(Hybrid, HasTheBitsOfMpi) {
  if (test_world().size() != 4) {
    GTEST_SKIP() << "groups of two need four ranks";
  }
  const auto config = configured(
      "lm10m-tiny", {"technique.name=fsdp", "technique.shard_group=2", "precision.reduce=bf16", "precision.compute=bf16"});
  auto over_mpi = comm::make_communicator(test_world(), {});
  const auto device = device::make_host_device(true);
  auto over_nccl = nccl_stack(*device);
  const auto expected = train_over(over_mpi, config);
  for (const auto& check : train::compare_bits(expected, train_over(over_nccl, config))) {
    EXPECT_ON_ALL_RANKS(check.passed) << check.name;
  }
}

/// Calls of LibTorch that make the host wait for a device's result, but for those of the optimizer of host memory, whose place
/// on a device kernels of ours take.
std::atomic<std::int64_t> num_asked{0};
thread_local int num_host_optimizers = 0;

bool is_host_optimizer(const at::RecordFunction& called) {
  const std::string_view name(called.name());
  return name == "aten::_fused_adamw_" || name == "aten::_fused_adam_";
}

class AskedResults {
 public:
  AskedResults()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}))),
        before_(num_asked.load()) {}
  AskedResults(const AskedResults&) = delete;
  AskedResults& operator=(const AskedResults&) = delete;
  ~AskedResults() { at::removeCallback(handle_); }
  [[nodiscard]] std::int64_t count() const { return num_asked.load() - before_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& called) {
    constexpr std::array<std::string_view, 5> asks{"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero",
                                                   "aten::nonzero", "aten::equal"};
    num_host_optimizers += is_host_optimizer(called) ? 1 : 0;
    const bool counts = num_host_optimizers == 0 && std::ranges::find(asks, called.name()) != asks.end();
    num_asked += counts ? 1 : 0;
    return nullptr;
  }
  static void end(const at::RecordFunction& called, at::ObserverContext* /*context*/) {
    num_host_optimizers -= is_host_optimizer(called) ? 1 : 0;
  }

  at::CallbackHandle handle_;
  std::int64_t before_;
};

TEST(HostWaits, ACheckedRunGivesBackWhatItTookAndEndsInPeace) {
  set_up_program();
  const auto events = [&](std::int64_t steps) {
    CountingDevice device;
    auto options = nccl_options(device);
    options.check = true;
    auto stack = comm::make_communicator(test_world(), options);
    static_cast<void>(train_over(stack, configured("lm10m-tiny", {"technique.name=fsdp", "measure.blocks=1",
                                                                  "measure.steps=" + std::to_string(steps)})));
    return device.counts().events;
  };
  const auto before = nccl_calls();
  const auto few = events(2);
  const auto many = events(12);
  // How many collectives are under way at once depends on the ranks' chance meetings: a few more, and not some by the step.
  EXPECT_ON_ALL_RANKS(many - few < 10 * kMarksPerStep + 10) << many << " and " << few;
  EXPECT_ON_ALL_RANKS(nccl_calls().aborted == before.aborted);
  EXPECT_ON_ALL_RANKS(nccl_calls().live == before.live);
}

TEST(HostWaits, NothingInAStepAndNoAllocationOnceShapesRepeat) {
  set_up_program();
  for (const std::string technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    for (const std::string reduction : {"ordered", "fast"}) {
      const auto counted = [&](std::int64_t steps) {
        CountingDevice device;
        auto stack = nccl_stack(device);
        const auto config = configured("lm10m-tiny", {"technique.name=" + technique, "numerics.reduction=" + reduction,
                                                      "measure.blocks=1", "measure.steps=" + std::to_string(steps)});
        const AskedResults asked;
        static_cast<void>(train_over(stack, config));
        auto counts = device.counts();
        counts.waits += asked.count();
        return counts;
      };
      // The host waits for the device between blocks and at the end, never by the number of steps: ten more cost nothing.
      // Events that mark the steps of a block are made for all of it beforehand.
      const auto few = counted(2);
      const auto many = counted(12);
      EXPECT_ON_ALL_RANKS(many.waits == few.waits)
          << technique << " " << reduction << ": " << many.waits << " and " << few.waits;
      EXPECT_ON_ALL_RANKS(many.allocations == few.allocations) << technique << " " << reduction;
      EXPECT_ON_ALL_RANKS(many.streams == few.streams) << technique << " " << reduction;
      EXPECT_ON_ALL_RANKS(many.events - few.events == 10 * kMarksPerStep) << technique << " " << reduction;
    }
  }
}

/// A plan of faults for this rank.
base::FaultPlan planted(const std::string& text) {
  base::FaultPlan plan(base::parse_fault(text));
  plan.set_world_rank(test_world().rank());
  return plan;
}

TEST(NonFinite, ASkippedStepChangesNothingAndTrainingGoesOn) {
  set_up_program();
  const std::string last = std::to_string(test_world().size() - 1);
  for (const std::string technique : {"ddp", "zero1", "fsdp"}) {
    for (const std::string reduction : {"ordered", "fast"}) {
      const auto config = configured(
          "mlp-digits", {"technique.name=" + technique, "numerics.reduction=" + reduction, "numerics.on_nonfinite=skip"});
      const auto train = [&](comm::CommunicatorStack& stack) {
        auto faults = planted(last + ":backward:3:nan");
        return train::run_cell({config, workloads::make_workload, stack, faults, test_world().size()});
      };
      auto over_mpi = comm::make_communicator(test_world(), {.check = false});
      const auto device = device::make_host_device(true);
      auto over_nccl = nccl_stack(*device);
      const auto expected = train(over_mpi);
      const auto found = train(over_nccl);
      EXPECT_ON_ALL_RANKS(std::isnan(found.losses.at(3)) || std::isnan(found.grad_norms.at(3)));
      EXPECT_ON_ALL_RANKS(std::isfinite(found.losses.back()) && std::isfinite(found.grad_norms.back()));
      if (reduction == "ordered") {
        std::int64_t unlike = 0;
        for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
          unlike += at::equal(expected.parameters[i].values, found.parameters[i].values) ? 0 : 1;
        }
        EXPECT_ON_ALL_RANKS(unlike == 0) << technique << ": " << unlike << " parameters differ";
      }
    }
  }
}

TEST(NonFinite, EndsTheRunAtTheBlockOnAllRanksAndNamesTheStep) {
  set_up_program();
  const auto config = configured("mlp-digits", {"technique.name=ddp"});
  const auto device = device::make_host_device(true);
  auto over_nccl = nccl_stack(*device);
  auto faults = planted("0:backward:3:nan");
  std::string message;
  try {
    static_cast<void>(train::run_cell({config, workloads::make_workload, over_nccl, faults, test_world().size()}));
  } catch (const base::NumericsError& error) {
    message = error.what();
  }
  EXPECT_ON_ALL_RANKS(message.find("step 3:") != std::string::npos) << message;
}

TEST(Staged, ADeviceWithoutNcclHasTheBitsOfMpi) {
  set_up_program();
  for (const std::string technique : {"ddp", "zero2", "fsdp"}) {
    const auto config = configured("lm10m-tiny", {"technique.name=" + technique, "precision.compute=bf16"});
    auto over_mpi = comm::make_communicator(test_world(), {});
    const auto device = device::make_host_device(true);
    comm::FactoryOptions options;
    options.backend = "mpi";
    options.device = device.get();
    auto staged = comm::make_communicator(test_world(), options);
    const auto before = nccl_calls();
    const auto expected = train_over(over_mpi, config);
    for (const auto& check : train::compare_bits(expected, train_over(staged, config))) {
      EXPECT_ON_ALL_RANKS(check.passed) << technique << ": " << check.name;
    }
    EXPECT_EQ(nccl_calls().collectives, before.collectives);
  }
}

}  // namespace
}  // namespace shardmark::testing
