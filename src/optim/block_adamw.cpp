#include "optim/block_adamw.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "device/memory_ledger.hpp"
#include "kernels/adam8bit.hpp"
#include "optim/block_states.hpp"
#include "optim/stateful_optimizer.hpp"

namespace shardmark::optim {
namespace {

using block_states::kBlock;
// Elements converted at a time where parameters or gradients do not rest in fp32.
constexpr std::int64_t kChunk = 64 * kBlock;

class BlockAdamW final : public StatefulOptimizer {
 public:
  explicit BlockAdamW(const OptimizerOptions& options) : StatefulOptimizer(block_states::names(), options), options_(options) {}

  void update(std::size_t range, double lr, float coefficient) override {
    for (const auto& segment : layouts()[range].segments) {
      for (std::int64_t begin = segment.begin; begin < segment.end;) {
        const std::int64_t end = converts(ranges_[range]) ? std::min(begin + kChunk, segment.end) : segment.end;
        update_stretch(range, segment, begin, end, lr, coefficient);
        begin = end;
      }
    }
  }

  [[nodiscard]] std::int64_t small_below() const override { return block_states::kSmallBelow; }

 private:
  void take(std::vector<Range> ranges) override {
    ranges_ = std::move(ranges);
    for (const auto& range : ranges_) {
      block_states::check_segments(range);
    }
    if (std::ranges::any_of(ranges_, converts) && !scratch_[0].defined()) {
      const device::MemoryScope scope(device::MemoryCategory::workspace);
      scratch_ = {at::zeros({kChunk}, at::kFloat), at::zeros({kChunk}, at::kFloat)};
    }
  }
  void release() override { ranges_.clear(); }
  [[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t kind) const override {
    return block_states::numel_of(range, kind);
  }
  [[nodiscard]] at::ScalarType type_of(std::size_t kind) const override { return block_states::type_of(kind); }
  [[nodiscard]] std::optional<StatePlace> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element,
                                                   std::int64_t numel) const override {
    return block_states::place_of(range, kind, element, numel);
  }

  static bool converts(const Range& range) {
    return range.parameters.scalar_type() != at::kFloat || range.gradients.scalar_type() != at::kFloat;
  }

  void update_stretch(std::size_t index, const Segment& segment, std::int64_t begin, std::int64_t end, double lr,
                      float coefficient) {
    const auto& range = ranges_[index];
    const auto widened = [&](const at::Tensor& resting, const at::Tensor& scratch) {
      const at::Tensor part = resting.narrow(0, begin, end - begin);
      return part.scalar_type() == at::kFloat ? part : scratch.narrow(0, 0, end - begin).copy_(part);
    };
    const at::Tensor parameters = widened(range.parameters, scratch_[0]);
    const at::Tensor gradients = widened(range.gradients, scratch_[1]);
    const std::int64_t block = block_states::blocks_before(layouts()[index], begin, segment.small);
    const auto& mine = states()[index];
    if (segment.small) {
      if (coefficient != 1.0F) {
        gradients.mul_(coefficient);
      }
      const std::vector<at::Tensor> first{mine[block_states::first_small].narrow(0, block * kBlock, end - begin)};
      const std::vector<at::Tensor> second{mine[block_states::second_small].narrow(0, block * kBlock, end - begin)};
      const at::TensorList no_max_squares;
      at::_fused_adamw_({parameters}, {gradients}, first, second, no_max_squares, {step_tensor()}, lr, options_.beta1,
                        options_.beta2, segment.decayed ? options_.weight_decay : 0.0, options_.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
    } else {
      auto rule = block_states::rule_of(options_, lr, segment.decayed);
      rule.coefficient = coefficient;
      rule.step = steps();
      kernels::adam8bit_update(parameters.data_ptr<float>(), gradients.const_data_ptr<float>(),
                               block_states::codes_at(mine, block), end - begin, rule);
    }
    if (range.parameters.scalar_type() != at::kFloat) {
      range.parameters.narrow(0, begin, end - begin).copy_(parameters);
    }
  }

  OptimizerOptions options_;
  std::vector<Range> ranges_;
  std::array<at::Tensor, 2> scratch_;
};

}  // namespace

std::unique_ptr<Optimizer> make_block_adamw(const OptimizerOptions& options) {
  return std::make_unique<BlockAdamW>(options);
}

}  // namespace shardmark::optim
