// What a strategy promises beside numbers: errors that name their cause on every rank, buffers and buckets, bytes.

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "tests/parallel/parallel/definition.hpp"

namespace shardmark::testing {
namespace {

using device::MemoryCategory;

/// Gradient all-reduces started so far by this rank.
std::int64_t started_reductions(TinyRun& run) {
  std::int64_t started = 0;
  for (const auto& row : run.counts().rows()) {
    started += row.purpose == comm::Purpose::gradient ? row.count : 0;
  }
  return started;
}

/// What the first micro-step throws; "" if nothing.
std::string message_of_first_micro_step(TinyRun& run) {
  try {
    run.micro_step(0, 0);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Unused, AParameterWithoutGradientIsNamed) {
  auto options = tiny_strategy_options();
  options.bucket_bytes.reset();  // one bucket, which never fills: nothing is in flight when every rank throws
  TinyRun run("ddp", options, {.gate = Gate::unused}, 0);
  run.strategy().begin_step();
  const std::string message = message_of_first_micro_step(run);
  EXPECT_ON_ALL_RANKS(message.find("gate.scale") != std::string::npos) << message;
  EXPECT_ON_ALL_RANKS(message.find("technique.unused_parameters") != std::string::npos) << message;
  EXPECT_ON_ALL_RANKS(message.find("head.weight") == std::string::npos) << "it has a gradient: " << message;
}

// Within groups of two a rank of four is also one of two.
TEST(Unused, ARankOfAGroupIsNamedByItsPlaceAmongAll) {
  auto options = tiny_strategy_options();
  options.shard_group = test_world().size() % 2 == 0 ? 2 : 0;
  TinyRun run("fsdp", options, {.gate = Gate::unused}, 0);
  run.strategy().begin_step();
  const std::string message = message_of_first_micro_step(run);
  EXPECT_ON_ALL_RANKS(message.starts_with("rank " + std::to_string(test_world().rank()) + ": ")) << message;
}

TEST(Unused, AllowedItsGradientIsZeroAndItStays) {
  auto options = tiny_strategy_options();
  options.allow_unused = true;
  options.micro_steps = 2;
  options.optimizer.weight_decay = 0;
  TinyRun run("ddp", options, {.gate = Gate::unused}, 0);
  const auto before = copies(run.strategy().gather_parameters());
  for (std::int64_t step = 0; step < 2; ++step) {
    run.step(step);
    if (test_world().rank() == 0) {
      EXPECT_EQ(run.gradients.back().name, "gate.scale");
      EXPECT_TRUE(run.gradients.back().values.eq(0).all().item<bool>()) << run.gradients.back().values;
      EXPECT_TRUE(same_bits(run.parameters.back().values, before.back().values));
      EXPECT_FALSE(same_bits(run.parameters.front().values, before.front().values)) << "nothing was trained";
    }
  }
}

TEST(ModelBuffers, ThatChangeByRankComeFromRank0AtEveryStepAndOthersStay) {
  TinyRun run("ddp", tiny_strategy_options(), {}, 0, [](model::ParameterList& list) {
    list.add_buffer("norm.mean", at::zeros({17}, at::kFloat), /*changes_by_rank=*/true);
    list.add_buffer("norm.count", at::zeros({1}, at::kLong));
    list.add_buffer("norm.variance", at::zeros({3}, at::kFloat), /*changes_by_rank=*/true);
  });
  const auto& buffers = run.model().list.buffers();
  const int rank = test_world().rank();
  for (std::int64_t step = 0; step < 2; ++step) {
    buffers[0].value.fill_(static_cast<double>(10 * step + rank));
    buffers[1].value.fill_(100 * step + rank);
    buffers[2].value.fill_(static_cast<double>(1000 * step + rank));
    run.strategy().begin_step();
    EXPECT_TRUE(buffers[0].value.eq(static_cast<double>(10 * step)).all().item<bool>()) << buffers[0].value;
    EXPECT_EQ(buffers[1].value.item<std::int64_t>(), 100 * step + rank);
    EXPECT_TRUE(buffers[2].value.eq(static_cast<double>(1000 * step)).all().item<bool>()) << buffers[2].value;
    run.micro_step(step, 0);
    static_cast<void>(run.strategy().finish_gradients());
    run.strategy().end_step();
  }
}

TEST(ModelBuffers, OfWholeNumbersThatChangeByRankAreRefused) {
  const auto alter = [](model::ParameterList& list) {
    list.add_buffer("norm.count", at::zeros({1}, at::kLong), /*changes_by_rank=*/true);
  };
  EXPECT_THROW(TinyRun("ddp", tiny_strategy_options(), {}, 0, alter), base::InvariantError);
}

/// Prepares a model that `alter` changed on the last rank; the message that every rank must throw.
std::string handshake_message(const std::function<void(model::ParameterList&)>& alter) {
  TinyModel model({});
  if (test_world().rank() == test_world().size() - 1) {
    alter(model.list);
  }
  auto stack = comm::make_communicator(test_world(), {});
  const auto strategy = parallel::make_strategy("ddp", tiny_strategy_options(), stack.communicator());
  try {
    strategy->prepare(model.list, nullptr);
  } catch (const base::MismatchError& error) {
    return error.what();
  }
  return "no MismatchError";
}

struct Difference {
  const char* what;
  std::function<void(model::ParameterList&)> alter;
  std::vector<std::string> parts;  // of the message: the parameter and both sides
};

class Handshake : public ::testing::TestWithParam<Difference> {};

TEST_P(Handshake, ADifferenceIsNamedOnEveryRank) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank cannot differ from itself";
  }
  const std::string message = handshake_message(GetParam().alter);
  auto parts = GetParam().parts;
  parts.emplace_back("rank 0");
  parts.push_back("rank " + std::to_string(test_world().size() - 1));
  for (const auto& part : parts) {
    EXPECT_ON_ALL_RANKS(message.find(part) != std::string::npos) << "\"" << part << "\" is not in: " << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Differences, Handshake,
    ::testing::Values(Difference{"shape",
                                 [](model::ParameterList& list) {
                                   list.parameters()[2].shape = {kIn, kHidden};
                                 },
                                 {"body.weight", "13, 7", "7, 13"}},
                      Difference{"name",
                                 [](model::ParameterList& list) { list.parameters()[3].name = "body.offset"; },
                                 {"body.bias", "body.offset"}},
                      Difference{"trainability",
                                 [](model::ParameterList& list) { list.parameters()[1].trainable = false; },
                                 {"head.bias (5)\"", "head.bias (5) frozen"}},
                      Difference{"number",
                                 [](model::ParameterList& list) { list.add("extra.weight", {3}, {}); },
                                 {"extra.weight", "no further parameter"}}),
    [](const auto& one) { return std::string(one.param.what); });

TEST(Frozen, NoGradientAndNoState) {
  device::install_memory_ledger();
  const auto held = [](MemoryCategory category) {
    return device::memory_snapshot().current[static_cast<std::size_t>(category)];
  };
  const std::int64_t gradients_before = held(MemoryCategory::gradients);
  const std::int64_t state_before = held(MemoryCategory::optimizer_state);
  TinyRun run("ddp", tiny_strategy_options(), {.frozen_body = true}, 0);
  const auto& strategy = run.strategy();
  const std::int64_t trained = run.model().list.trainable_numel() + strategy.trainable_padding_elements();
  EXPECT_EQ(run.model().list.trainable_numel(), kOut * kHidden + kOut + kHidden);
  EXPECT_EQ(held(MemoryCategory::gradients) - gradients_before, 4 * trained);
  EXPECT_EQ(held(MemoryCategory::optimizer_state) - state_before, 8 * trained);  // exp_avg and exp_avg_sq
  EXPECT_EQ(strategy.predicted_bytes()[static_cast<std::size_t>(MemoryCategory::gradients)], 4 * trained);
  EXPECT_EQ(strategy.predicted_bytes()[static_cast<std::size_t>(MemoryCategory::optimizer_state)], 8 * trained);
  const auto& frozen = run.model().list.parameters()[2];
  const torch::Tensor before = frozen.value.clone();
  for (std::int64_t step = 0; step < 2; ++step) {
    run.step(step);
    EXPECT_FALSE(frozen.value.requires_grad());
    EXPECT_FALSE(frozen.value.grad().defined());
    EXPECT_TRUE(same_bits(frozen.value.contiguous(), before)) << "after step " << step;
    for (const auto& gradient : run.gradients) {
      EXPECT_NE(gradient.name, frozen.name);
    }
  }
}

/// Four steps with and without overlap: the same gradients, parameters and norms.
void expect_overlap_changes_nothing(parallel::StrategyOptions options) {
  options.overlap = true;
  TinyRun overlapped("ddp", options, {}, 0.05);
  options.overlap = false;
  TinyRun after("ddp", options, {}, 0.05);
  for (std::int64_t step = 0; step < 4; ++step) {
    overlapped.step(step);
    after.step(step);
    EXPECT_TRUE(equal_tensors(overlapped.gradients, after.gradients)) << "step " << step;
    EXPECT_TRUE(equal_tensors(overlapped.parameters, after.parameters)) << "step " << step;
    EXPECT_EQ(overlapped.summary.norm, after.summary.norm);
  }
}

TEST(Overlap, OnAndOffGiveTheSameBits) {
  for (const auto order : {comm::SumOrder::ordered, comm::SumOrder::fast}) {
    for (const bool no_sync : {false, true}) {
      auto options = tiny_strategy_options();
      options.order = order;
      options.no_sync = no_sync;
      options.micro_steps = 3;
      expect_overlap_changes_nothing(options);
    }
  }
}

TEST(Overlap, BucketsStartDuringBackwardOnlyWithIt) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank reduces nothing";
  }
  for (const bool overlap : {true, false}) {
    auto options = tiny_strategy_options();
    options.overlap = overlap;
    TinyRun run("ddp", options, {}, 0);
    run.step(0);
    run.counts().reset();
    std::int64_t at_hidden = -1;
    run.on_hidden = [&] { at_hidden = started_reductions(run); };
    run.step(1);
    const std::int64_t all = started_reductions(run);
    EXPECT_GE(all, 4) << "a bucket or more for every tensor";
    EXPECT_EQ(at_hidden > 0, overlap) << at_hidden << " reductions had started when backward had passed the head";
    EXPECT_LT(at_hidden, all) << "the body's gradients did not exist yet";
  }
}

TEST(Buckets, FollowTheArrivalOrderAfterTheFirstStep) {
  if (test_world().size() == 1) {
    GTEST_SKIP() << "one rank has no buckets to fill";
  }
  // The head is declared first, so the first step expects it last: its gradients, which come first, start nothing then.
  TinyRun run("ddp", tiny_strategy_options(), {}, 0);
  std::vector<std::int64_t> at_hidden;
  run.on_hidden = [&] { at_hidden.push_back(started_reductions(run)); };
  for (std::int64_t step = 0; step < 3; ++step) {
    run.counts().reset();
    run.step(step);
  }
  EXPECT_EQ(at_hidden.size(), 3U);
  if (at_hidden.size() == 3) {
    EXPECT_EQ(at_hidden[0], 0);
    EXPECT_GE(at_hidden[1], 2) << "weight and bias of the head";
    EXPECT_EQ(at_hidden[2], at_hidden[1]);
  }
}

TEST(Payload, CountedBytesEqualTheFormula) {
  const auto size = static_cast<double>(test_world().size());
  for (const bool no_sync : {false, true}) {
    auto options = tiny_strategy_options();
    options.micro_steps = 3;
    options.no_sync = no_sync;
    TinyRun run("ddp", options, {}, 0);
    for (std::int64_t step = 0; step < 3; ++step) {
      run.counts().reset();
      run.step(step);
      double counted = 0;
      for (const auto& row : run.counts().rows()) {
        counted += row.purpose == comm::Purpose::gradient || row.purpose == comm::Purpose::parameter ? row.wire_bytes : 0;
      }
      const std::int64_t elements = run.model().list.trainable_numel() + run.strategy().trainable_padding_elements();
      EXPECT_DOUBLE_EQ(counted, 2 * (no_sync ? 1 : 3) * 4 * static_cast<double>(elements) * (size - 1) / size);
      EXPECT_DOUBLE_EQ(counted, run.strategy().payload_per_step().bytes);
    }
  }
}

TEST(Nonfinite, TheParameterIsNamed) {
  TinyRun run("ddp", tiny_strategy_options(), {}, 0);
  // A NaN in the head's bias on the last rank makes its errors NaN, and so every gradient: the first that arrives there is
  // named.
  run.strategy().begin_step();
  if (test_world().rank() == test_world().size() - 1) {
    const torch::NoGradGuard no_grad;
    run.model().list.parameters()[1].value.fill_(std::nan(""));
  }
  run.micro_step(0, 0);
  const auto summary = run.strategy().finish_gradients();
  EXPECT_FALSE(summary.finite);
  EXPECT_THAT(summary.nonfinite, ::testing::HasSubstr("gradient of "));
  EXPECT_THAT(summary.nonfinite, ::testing::HasSubstr("on rank " + std::to_string(test_world().size() - 1)));
}

TEST(Nonfinite, IsForgottenAtTheNextStep) {
  TinyRun run("ddp", tiny_strategy_options(), {}, 0);
  for (const int bad : {0, test_world().size() - 1}) {
    auto& value = run.model().list.parameters()[1].value;
    const torch::Tensor before = value.detach().clone();
    run.strategy().begin_step();
    if (test_world().rank() == bad) {
      const torch::NoGradGuard no_grad;
      value.fill_(std::nan(""));
    }
    run.micro_step(0, 0);
    EXPECT_THAT(run.strategy().finish_gradients().nonfinite, ::testing::HasSubstr("on rank " + std::to_string(bad)));
    {
      const torch::NoGradGuard no_grad;
      value.copy_(before);
    }
    run.strategy().end_step();
  }
}

}  // namespace
}  // namespace shardmark::testing
