// Offloaded optimizers: the bits of the plain ones through any queue of copies, copies that overlap updates, and bytes as
// predicted.

#include "optim/offloaded_optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/support/late_copy_queue.hpp"

namespace shardmark::optim {
namespace {

using device::MemoryCategory;
using testing::LateCopyQueue;
using testing::make_late_copy_queue;

struct Case {
  OptimizerOptions options;
  at::ScalarType parameters = at::kFloat;
  at::ScalarType gradients = at::kFloat;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* name : {"sgd", "adam", "adamw", "adamw8bit"}) {
    OptimizerOptions options{.name = name, .weight_decay = 0.1, .momentum = 0.9};
    all.push_back({options});
    all.push_back({options, at::kFloat, at::kBFloat16});
    if (options.name != "adamw8bit") {
      options.state = base::DType::bf16;
      all.push_back({options, at::kBFloat16, at::kBFloat16});
    }
  }
  return all;
}

at::Tensor drawn(std::int64_t count, const char* what, int salt, at::ScalarType type) {
  const base::RandomStream stream(3, what, static_cast<std::uint64_t>(salt));
  at::Tensor values = at::empty({count}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) {
    values.data_ptr<float>()[i] = stream.uniform(static_cast<std::uint64_t>(i)) - 0.5F;
  }
  return values.to(type);
}

// Blocks of 256: the 8-bit rule needs them. More ranges than slots; an empty one; the largest neither first nor last.
const std::vector<std::int64_t> kSizes{512, 4608, 0, 256, 5120, 256, 1024};

std::vector<Range> make_ranges(const std::vector<std::int64_t>& sizes, const Case& the_case) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<Segment> segments;
    if (sizes[i] > 0) {
      segments = {{0, 256, false, true}};
    }
    if (sizes[i] > 256) {
      segments.push_back({256, sizes[i], true, false});
    }
    ranges.push_back({drawn(sizes[i], "parameters", static_cast<int>(i), the_case.parameters),
                      at::zeros({sizes[i]}, the_case.gradients), segments});
  }
  return ranges;
}

std::vector<RangeLayout> layouts_of(const std::vector<Range>& ranges) {
  std::vector<RangeLayout> layouts;
  for (const auto& range : ranges) {
    layouts.push_back({range.parameters.numel(), range.segments});
  }
  return layouts;
}

/// One step of all ranges, each finished when `lag` more were updated.
void step(Optimizer& optimizer, std::vector<Range>& ranges, int index, float coefficient, std::size_t lag) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    auto& gradients = ranges[i].gradients;
    gradients.copy_(drawn(gradients.numel(), "gradients", 100 * index + static_cast<int>(i), at::kFloat));
  }
  optimizer.begin_step();
  for (std::size_t i = 0; i < ranges.size() + lag; ++i) {
    if (i < ranges.size()) {
      optimizer.update(i, 0.01, coefficient);
    }
    if (i >= lag && i - lag < ranges.size()) {
      optimizer.finish(i - lag);
    }
  }
}
void step(Optimizer& optimizer, std::vector<Range>& ranges, int index, float coefficient) {
  step(optimizer, ranges, index, coefficient, optimizer.lag());
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

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].scalar_type() == b[i].scalar_type() && a[i].nbytes() == b[i].nbytes() &&
           (a[i].numel() == 0 || std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) == 0);
  }
  return same;
}

TEST(OffloadedOptimizer, GivesTheBitsOfThePlainOneThroughAnyQueue) {
  for (auto the_case : cases()) {
    const auto trained = [&](device::MakeCopyQueue queue, std::size_t num_ranges, std::size_t lag) {
      the_case.options.offload = std::move(queue);
      const auto optimizer = make_optimizer(the_case.options);
      auto ranges = make_ranges({kSizes.begin(), kSizes.begin() + static_cast<std::ptrdiff_t>(num_ranges)}, the_case);
      optimizer->bind(ranges, {});
      for (int index = 0; index < 3; ++index) {
        step(*optimizer, ranges, index, index == 1 ? 0.3F : 1.0F, lag);
      }
      EXPECT_EQ(optimizer->steps(), 3);
      return values_of(*optimizer, ranges);
    };
    for (std::size_t num_ranges = 0; num_ranges <= kSizes.size(); ++num_ranges) {
      const auto plain = trained(nullptr, num_ranges, 0);
      for (const std::size_t lag : {std::size_t{0}, std::size_t{1}, num_ranges}) {  // a caller may wait sooner or later
        EXPECT_TRUE(same_bits(trained(device::make_host_copy_queue, num_ranges, lag), plain)) << the_case.options.name;
        EXPECT_TRUE(same_bits(trained(make_late_copy_queue, num_ranges, lag), plain)) << the_case.options.name;
      }
    }
  }
}

TEST(OffloadedOptimizer, StatesMoveToAnotherLayout) {
  for (auto the_case : cases()) {
    const auto trained = [&](device::MakeCopyQueue queue) {
      the_case.options.offload = std::move(queue);
      const auto optimizer = make_optimizer(the_case.options);
      auto ranges = make_ranges({5120, 512}, the_case);
      optimizer->bind(ranges, {});
      step(*optimizer, ranges, 0, 1);
      optimizer->unbind();
      std::vector<Range> swapped{ranges[1], ranges[0]};
      optimizer->relayout(layouts_of(swapped),
                          {{0, 0, 1, 0, 256}, {0, 256, 1, 256, 4864}, {1, 0, 0, 0, 256}, {1, 256, 0, 256, 256}});
      optimizer->bind(swapped, {});
      step(*optimizer, swapped, 1, 1);
      return values_of(*optimizer, swapped);
    };
    EXPECT_TRUE(same_bits(trained(make_late_copy_queue), trained(nullptr))) << the_case.options.name;
  }
}

TEST(OffloadedOptimizer, CopiesTheNextRangeInAndTheLastOutWhileOneIsUpdated) {
  LateCopyQueue* queue = nullptr;
  Case the_case{{.name = "adamw"}};
  the_case.options.offload = [&] {
    auto made = std::make_unique<LateCopyQueue>();
    queue = made.get();
    return made;
  };
  const auto optimizer = make_optimizer(the_case.options);
  auto ranges = make_ranges(kSizes, the_case);
  optimizer->bind(ranges, {});
  step(*optimizer, ranges, 0, 1);
  EXPECT_EQ(queue->most(), 5U)
      << "parameters and gradients of this range and of the next, and the parameters of the one before";
  // Before a range's copy out is waited for, a caller that reads early sees NaN.
  optimizer->begin_step();
  optimizer->update(0, 0.01, 1);
  EXPECT_TRUE(ranges[0].parameters.isnan().all().item<bool>());
  optimizer->finish(0);
  EXPECT_FALSE(ranges[0].parameters.isnan().any().item<bool>());
}

TEST(OffloadedOptimizer, WaitsForWhatIsUnderWayBeforeRangesAreLetGoOrUpdatedAnew) {
  const auto trained = [](device::MakeCopyQueue queue) {
    Case the_case{{.name = "adamw"}};
    the_case.options.offload = std::move(queue);
    const auto optimizer = make_optimizer(the_case.options);
    auto ranges = make_ranges(kSizes, the_case);
    optimizer->bind(ranges, {});
    for (int index = 0; index < 2; ++index) {  // nobody finishes anything
      optimizer->begin_step();
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        optimizer->update(i, 0.01, 1);
      }
    }
    optimizer->unbind();
    return values_of(*optimizer, ranges);
  };
  EXPECT_TRUE(same_bits(trained(make_late_copy_queue), trained(nullptr)));
}

/// An optimizer without states, so that what it holds in host memory is staging memory alone.
class Lending : public ::testing::Test {
 protected:
  Lending() {
    device::install_memory_ledger();
    the_case_.options.offload = [this] {
      auto made = std::make_unique<LateCopyQueue>();
      queue_ = made.get();
      return made;
    };
    optimizer_ = make_optimizer(the_case_.options);
  }
  static std::int64_t offloaded_bytes() {
    return device::memory_snapshot().current[static_cast<std::size_t>(MemoryCategory::offloaded)];
  }
  [[nodiscard]] std::int64_t lent_bytes() const { return static_cast<std::int64_t>(queue_->lent_bytes()); }

  Case the_case_{{.name = "sgd"}};
  LateCopyQueue* queue_ = nullptr;
  std::int64_t before_ = offloaded_bytes();
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(Lending, IsOfAllStagingMemoryAndEndsWithIt) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{kSizes, {256}, {}}) {
    auto ranges = make_ranges(sizes, the_case_);
    optimizer_->bind(ranges, {});
    const std::int64_t largest = sizes.empty() ? 0 : std::ranges::max(sizes);
    // Of a range parameters and gradients, both fp32; three ranges at most.
    EXPECT_EQ(lent_bytes(), largest * 8 * static_cast<std::int64_t>(std::min<std::size_t>(3, sizes.size())));
    EXPECT_EQ(offloaded_bytes() - before_, lent_bytes());
  }
  auto ranges = make_ranges(kSizes, the_case_);
  optimizer_->bind(ranges, {});
  step(*optimizer_, ranges, 0, 1);
  optimizer_->unbind();
  EXPECT_EQ(lent_bytes(), 0);
  EXPECT_EQ(offloaded_bytes(), before_);
}

TEST_F(Lending, ThatIsRefusedLeavesNothingBehind) {
  auto ranges = make_ranges(kSizes, the_case_);
  queue_->refuse_to_lend();
  EXPECT_THROW(optimizer_->bind(ranges, {}), base::MemoryError);
  EXPECT_EQ(offloaded_bytes(), before_);
  optimizer_->bind(ranges, {});  // takes nothing back that was not lent
  step(*optimizer_, ranges, 0, 1);
  the_case_.options.offload = nullptr;
  const auto plain = make_optimizer(the_case_.options);
  auto same = make_ranges(kSizes, the_case_);
  plain->bind(same, {});
  step(*plain, same, 0, 1);
  EXPECT_TRUE(same_bits(values_of(*optimizer_, ranges), values_of(*plain, same)));
}

TEST(OffloadedOptimizer, HoldsHostMemoryOnlyAndAsPredicted) {
  device::install_memory_ledger();
  const auto bytes = [](MemoryCategory category) {
    return device::memory_snapshot().current[static_cast<std::size_t>(category)];
  };
  for (auto the_case : cases()) {
    the_case.options.offload = device::make_host_copy_queue;
    for (const std::size_t num_ranges : {std::size_t{0}, std::size_t{1}, std::size_t{2}, kSizes.size()}) {
      auto ranges = make_ranges({kSizes.begin(), kSizes.begin() + static_cast<std::ptrdiff_t>(num_ranges)}, the_case);
      const std::int64_t states = bytes(MemoryCategory::optimizer_state);
      const std::int64_t before = bytes(MemoryCategory::offloaded);
      const auto optimizer = make_optimizer(the_case.options);
      const auto type = [](at::ScalarType from) { return from == at::kFloat ? base::DType::fp32 : base::DType::bf16; };
      const auto predicted =
          optimizer->persistent_bytes(layouts_of(ranges), type(the_case.parameters), type(the_case.gradients));
      optimizer->bind(ranges, {});
      step(*optimizer, ranges, 0, 1);
      EXPECT_EQ(bytes(MemoryCategory::optimizer_state), states);
      EXPECT_EQ(bytes(MemoryCategory::offloaded) - before, predicted[static_cast<std::size_t>(MemoryCategory::offloaded)])
          << the_case.options.name << ", " << num_ranges << " ranges";
      EXPECT_EQ(predicted[static_cast<std::size_t>(MemoryCategory::optimizer_state)], 0);
    }
  }
  // By hand: states of 8 bytes for 11,776 elements, and three slots of 5,120 fp32 parameters and bf16 gradients.
  OptimizerOptions adam{.name = "adamw"};
  adam.offload = device::make_host_copy_queue;
  const auto layouts = layouts_of(make_ranges(kSizes, {adam}));
  EXPECT_EQ(make_optimizer(adam)->persistent_bytes(layouts, base::DType::fp32,
                                                   base::DType::bf16)[static_cast<std::size_t>(MemoryCategory::offloaded)],
            8 * 11776 + 3 * 5120 * 6);
}

TEST(OffloadedOptimizer, RangesOfSeveralTypesAreRefused) {
  OptimizerOptions options{.name = "adamw"};
  options.offload = device::make_host_copy_queue;
  const auto optimizer = make_optimizer(options);
  const auto range = [](at::ScalarType type) { return Range{at::zeros({16}, type), at::zeros({16}, type), {{0, 16}}}; };
  EXPECT_THROW(optimizer->bind({range(at::kFloat), range(at::kBFloat16)}, {}), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::optim
