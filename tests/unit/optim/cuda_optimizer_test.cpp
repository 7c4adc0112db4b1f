// Optimizers by our own kernels, on the host builds: near LibTorch's fused optimizers where those run the same formulas, the
// bits of the host's 8-bit AdamW, skipped steps, working copies, and states that move.

#include "optim/cuda_optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::optim {
namespace {

constexpr double kLr = 0.01;

at::Tensor drawn(std::int64_t count, const std::string& what, at::ScalarType type) {
  const base::RandomStream stream(3, what, 0);
  at::Tensor values = at::empty({count}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) {
    values.data_ptr<float>()[i] = stream.uniform(static_cast<std::uint64_t>(i)) - 0.5F;
  }
  return values.to(type);
}

/// Two ranges with decayed, undecayed and small segments, in whole blocks of 256 as the 8-bit rule needs them; one is empty.
std::vector<Range> make_ranges(at::ScalarType parameters, at::ScalarType gradients) {
  std::vector<Range> ranges;
  for (const std::int64_t size : {1024, 0, 9728}) {
    std::vector<Segment> segments;
    if (size > 0) {
      segments = {{0, 256, false, true}, {256, 512, true, true}, {512, size, true, false}};
    }
    ranges.push_back({drawn(size, "parameters", parameters), at::zeros({size}, gradients), segments});
  }
  return ranges;
}

void draw_gradients(std::vector<Range>& ranges, int step) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].gradients.copy_(
        drawn(ranges[i].gradients.numel(), "gradients " + std::to_string(step) + " " + std::to_string(i), at::kFloat));
  }
}

void step_kernels(CudaOptimizer& optimizer, std::vector<Range>& ranges, int step, float coefficient, bool applied = true) {
  draw_gradients(ranges, step);
  kernels::StepScalars scalars;
  scalars.coefficient = coefficient;
  scalars.applied = applied ? 1 : 0;
  optimizer.begin_step(&scalars, nullptr);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    optimizer.update(i, kLr, nullptr);
  }
}

void step_host(Optimizer& optimizer, std::vector<Range>& ranges, int step, float coefficient) {
  draw_gradients(ranges, step);
  optimizer.begin_step();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    optimizer.update(i, kLr, coefficient);
  }
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.nbytes() == b.nbytes() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

std::vector<at::Tensor> values_of(const Optimizer& optimizer, const std::vector<Range>& ranges) {
  std::vector<at::Tensor> values;
  for (const auto& range : ranges) {
    values.push_back(range.parameters);
  }
  for (const auto& states : optimizer.states()) {
    values.insert(values.end(), states.begin(), states.end());
  }
  return values;
}

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i], b[i])) << what << ", tensor " << i;
  }
}

std::vector<OptimizerOptions> all_options() {
  std::vector<OptimizerOptions> all;
  for (const char* name : {"sgd", "adam", "adamw", "adamw8bit"}) {
    all.push_back({.name = name, .weight_decay = 0.1, .momentum = 0.9});
  }
  return all;
}

// Both sides run the same formulas (kernels/update.hpp) on gradients and parameters below 0.51. With u = 2^-24, on each side:
// momentum and moments of two steps err by less than 5 u (4 u of magnitudes that sum to 1.1 at most). A step of SGD is lr times
// such a number; one of AdamW is lr times a quotient below 1.5 whose relative error is below (13 x 2 + 8) u, since both moments
// are sums of numbers of one sign in magnitude. With lr = 0.01 that is less than u for both steps; three roundings of a
// parameter below 0.51 a step are 3.1 u. So the sides differ by at most 10 u. The decay in Adam's gradient may cancel most of
// it: only its first step is looked at, whose quotient has magnitude 1 however small the gradient is (none here is near eps).
TEST(CudaOptimizerOnHost, StaysByTheFusedOptimizers) {
  for (const std::string name : {"sgd", "adam", "adamw", "adamw8bit"}) {
    const OptimizerOptions options{.name = name, .weight_decay = 0.1, .momentum = 0.9};
    const auto ours = make_cuda_optimizer(options);
    const auto theirs = make_optimizer(options);
    auto our_ranges = make_ranges(at::kFloat, at::kFloat);
    auto their_ranges = make_ranges(at::kFloat, at::kFloat);
    ours->bind(our_ranges, {});
    theirs->bind(their_ranges, {});
    const int steps = name == "adam" ? 1 : 2;
    for (int step = 0; step < steps; ++step) {
      step_kernels(*ours, our_ranges, step, step == 1 ? 0.3F : 1.0F);
      step_host(*theirs, their_ranges, step, step == 1 ? 0.3F : 1.0F);
    }
    EXPECT_EQ(ours->steps(), steps);
    EXPECT_EQ(ours->state_names(), theirs->state_names());
    const auto our_values = values_of(*ours, our_ranges);
    const auto their_values = values_of(*theirs, their_ranges);
    ASSERT_EQ(our_values.size(), their_values.size());
    for (std::size_t i = 0; i < our_values.size(); ++i) {
      if (our_values[i].numel() > 0) {
        EXPECT_LE((our_values[i].to(at::kFloat) - their_values[i].to(at::kFloat)).abs().max().item<double>(), 10 * 0x1p-24)
            << name << ", tensor " << i;
      }
    }
  }
}

TEST(CudaOptimizerOnHost, EightBitCodesAreTheHosts) {
  for (const auto gradients : {at::kFloat, at::kBFloat16}) {
    const OptimizerOptions options{.name = "adamw8bit", .weight_decay = 0.1};
    const auto ours = make_cuda_optimizer(options);
    const auto theirs = make_optimizer(options);
    // Segments that are not small: small ones are updated by LibTorch there, by a kernel here.
    const auto ranges_of_codes = [&] {
      auto ranges = make_ranges(at::kFloat, gradients);
      for (auto& range : ranges) {
        for (auto& segment : range.segments) {
          segment.small = false;
        }
      }
      return ranges;
    };
    auto our_ranges = ranges_of_codes();
    auto their_ranges = ranges_of_codes();
    ours->bind(our_ranges, {});
    theirs->bind(their_ranges, {});
    for (int step = 0; step < 20; ++step) {
      step_kernels(*ours, our_ranges, step, step == 1 ? 0.3F : 1.0F);
      step_host(*theirs, their_ranges, step, step == 1 ? 0.3F : 1.0F);
    }
    expect_same_bits(values_of(*ours, our_ranges), values_of(*theirs, their_ranges), "adamw8bit");
  }
}

TEST(CudaOptimizerOnHost, ASkippedStepChangesNothingAndIsNotCounted) {
  for (const auto& options : all_options()) {
    const auto skipping = make_cuda_optimizer(options);
    const auto plain = make_cuda_optimizer(options);
    auto some_ranges = make_ranges(at::kFloat, at::kFloat);
    auto other_ranges = make_ranges(at::kFloat, at::kFloat);
    skipping->bind(some_ranges, {});
    plain->bind(other_ranges, {});
    step_kernels(*skipping, some_ranges, 7, 1, /*applied=*/false);
    for (int step = 0; step < 2; ++step) {
      step_kernels(*skipping, some_ranges, step, 1);
      step_kernels(*skipping, some_ranges, 7, 1, /*applied=*/false);
      step_kernels(*plain, other_ranges, step, 1);
    }
    EXPECT_EQ(skipping->steps(), 2);
    expect_same_bits(values_of(*skipping, some_ranges), values_of(*plain, other_ranges), options.name);
  }
}

TEST(CudaOptimizerOnHost, WorkingCopiesFollowTheParameters) {
  for (const auto& options : all_options()) {
    const auto optimizer = make_cuda_optimizer(options);
    auto ranges = make_ranges(at::kFloat, at::kFloat);
    optimizer->bind(ranges, {});
    const at::Tensor copy = at::zeros({ranges[2].parameters.numel()}, at::kBFloat16);
    optimizer->set_working({at::Tensor(), at::Tensor(), copy});
    step_kernels(*optimizer, ranges, 0, 1);
    EXPECT_TRUE(same_bits(copy, ranges[2].parameters.to(at::kBFloat16))) << options.name;
    EXPECT_THROW(optimizer->set_working({copy}), base::InvariantError);
    EXPECT_THROW(optimizer->set_working({copy, copy, copy}), base::InvariantError);
  }
}

TEST(CudaOptimizerOnHost, Bf16EverywhereIsRoundedOnceAnUpdate) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    // One step from zero states: both sides compute in fp32 from equal numbers and round once, so they differ by one unit of
    // bf16 where their fp32 results lie on two sides of a border.
    const OptimizerOptions options{.name = name, .weight_decay = 0.1, .momentum = 0.9, .state = base::DType::bf16};
    const auto ours = make_cuda_optimizer(options);
    const auto theirs = make_optimizer(options);
    auto our_ranges = make_ranges(at::kBFloat16, at::kBFloat16);
    auto their_ranges = make_ranges(at::kBFloat16, at::kBFloat16);
    ours->bind(our_ranges, {});
    theirs->bind(their_ranges, {});
    step_kernels(*ours, our_ranges, 0, 1);
    step_host(*theirs, their_ranges, 0, 1);
    const at::Tensor a = our_ranges[2].parameters.to(at::kFloat);
    const at::Tensor b = their_ranges[2].parameters.to(at::kFloat);
    EXPECT_TRUE(((a - b).abs() <= 0x1p-7 * b.abs() + 0x1p-24).all().item<bool>()) << name;
    EXPECT_EQ(ours->states()[2].front().scalar_type(), at::kBFloat16);
  }
}

TEST(CudaOptimizerOnHost, StatesMoveToAnotherLayout) {
  for (const auto& options : all_options()) {
    const auto trained = [&](bool moves) {
      const auto optimizer = make_cuda_optimizer(options);
      const std::vector<Segment> segments{{0, 512, true, true}, {512, 5120, true, false}};
      std::vector<Range> ranges{{drawn(5120, "parameters", at::kFloat), at::zeros({5120}, at::kFloat), segments}};
      optimizer->bind(ranges, {});
      step_kernels(*optimizer, ranges, 0, 1);
      if (moves) {
        // The small part goes to a range of its own, and back.
        const std::vector<RangeLayout> one{{5120, segments}};
        const std::vector<RangeLayout> two{{4608, {{0, 4608, true, false}}}, {512, {{0, 512, true, true}}}};
        optimizer->unbind();
        optimizer->relayout(two, {{0, 0, 1, 0, 512}, {0, 512, 0, 0, 4608}});
        optimizer->relayout(one, {{1, 0, 0, 0, 512}, {0, 0, 0, 512, 4608}});
        optimizer->bind(ranges, {});
      }
      step_kernels(*optimizer, ranges, 1, 1);
      EXPECT_EQ(optimizer->steps(), 2);
      return values_of(*optimizer, ranges);
    };
    expect_same_bits(trained(true), trained(false), options.name);
  }
}

TEST(CudaOptimizerOnHost, WrongUseIsRefused) {
  EXPECT_THROW(static_cast<void>(make_cuda_optimizer({.name = "lion"})), base::ConfigError);
  const auto optimizer = make_cuda_optimizer({.name = "adamw"});
  const kernels::StepScalars scalars;
  EXPECT_THROW(optimizer->begin_step(&scalars, nullptr), base::InvariantError);
  EXPECT_THROW(optimizer->begin_step(), base::InvariantError);
  EXPECT_THROW(optimizer->update(0, kLr, 1.0F), base::InvariantError);
  EXPECT_EQ(optimizer->steps(), 0);
}

}  // namespace
}  // namespace shardmark::optim
