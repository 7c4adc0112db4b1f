#include "optim/block_adamw.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "kernels/adam8bit.hpp"
#include "optim/stateful_optimizer.hpp"

namespace shardmark::optim {
namespace {

constexpr std::int64_t kBlock = kernels::kAdam8bitBlock;
constexpr std::int64_t kSmallBelow = 4096;
// Elements converted at a time where parameters or gradients do not rest in fp32.
constexpr std::int64_t kChunk = 64 * kBlock;

/// The kinds of state, and how many of each kind's elements a block of 256 takes.
enum Kind : std::size_t { first_codes, second_codes, first_scales, second_scales, first_small, second_small };
struct KindFacts {
  const char* name;
  bool of_small;
  std::int64_t in_block;
  at::ScalarType type;
};
constexpr std::array<KindFacts, 6> kKinds{{{"exp_avg_codes", false, kBlock, at::kChar},
                                           {"exp_avg_sq_codes", false, kBlock, at::kByte},
                                           {"exp_avg_scales", false, 1, at::kFloat},
                                           {"exp_avg_sq_scales", false, 1, at::kFloat},
                                           {"exp_avg", true, kBlock, at::kFloat},
                                           {"exp_avg_sq", true, kBlock, at::kFloat}}};

/// Blocks of coded (or of small) segments before an element of the range.
std::int64_t blocks_before(const RangeLayout& range, std::int64_t element, bool small) {
  std::int64_t elements = 0;
  for (const auto& segment : range.segments) {
    if (segment.small == small) {
      elements += std::clamp<std::int64_t>(element - segment.begin, 0, segment.end - segment.begin);
    }
  }
  return elements / kBlock;
}

bool is_small(const RangeLayout& range, std::int64_t element) {
  for (const auto& segment : range.segments) {
    if (segment.begin <= element && element < segment.end) {
      return segment.small;
    }
  }
  throw base::InvariantError("an element that no segment of the range covers");
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const auto& kind : kKinds) {
    names.emplace_back(kind.name);
  }
  return names;
}

class BlockAdamW final : public StatefulOptimizer {
 public:
  explicit BlockAdamW(const OptimizerOptions& options) : StatefulOptimizer(kind_names(), options), options_(options) {}

  void update(std::size_t range, double lr, float coefficient) override {
    for (const auto& segment : layouts()[range].segments) {
      for (std::int64_t begin = segment.begin; begin < segment.end;) {
        const std::int64_t end = converts(ranges_[range]) ? std::min(begin + kChunk, segment.end) : segment.end;
        update_stretch(range, segment, begin, end, lr, coefficient);
        begin = end;
      }
    }
  }

  [[nodiscard]] std::int64_t small_below() const override { return kSmallBelow; }

 private:
  void take(std::vector<Range> ranges) override {
    ranges_ = std::move(ranges);
    for (const auto& range : ranges_) {
      for (const auto& segment : range.segments) {
        SM_CHECK(segment.begin % kBlock == 0 && segment.end % kBlock == 0, "8-bit states need segments of whole blocks");
      }
    }
    if (std::ranges::any_of(ranges_, converts) && !scratch_[0].defined()) {
      const device::MemoryScope scope(device::MemoryCategory::workspace);
      scratch_ = {at::zeros({kChunk}, at::kFloat), at::zeros({kChunk}, at::kFloat)};
    }
  }
  void release() override { ranges_.clear(); }
  [[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t kind) const override {
    return blocks_before(range, range.numel, kKinds[kind].of_small) * kKinds[kind].in_block;
  }
  [[nodiscard]] at::ScalarType type_of(std::size_t kind) const override { return kKinds[kind].type; }
  [[nodiscard]] std::optional<Place> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element,
                                              std::int64_t numel) const override {
    const auto& facts = kKinds[kind];
    if (is_small(range, element) != facts.of_small) {
      return std::nullopt;
    }
    // A tensor's tail up to the block's end goes with it.
    return Place{blocks_before(range, element, facts.of_small) * facts.in_block,
                 (numel + kBlock - 1) / kBlock * facts.in_block};
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
    const double decay = segment.decayed ? options_.weight_decay : 0.0;
    const std::int64_t block = blocks_before(layouts()[index], begin, segment.small);
    const auto& mine = states()[index];
    if (segment.small) {
      if (coefficient != 1.0F) {
        gradients.mul_(coefficient);
      }
      const std::vector<at::Tensor> first{mine[first_small].narrow(0, block * kBlock, end - begin)};
      const std::vector<at::Tensor> second{mine[second_small].narrow(0, block * kBlock, end - begin)};
      const at::TensorList no_max_squares;
      at::_fused_adamw_({parameters}, {gradients}, first, second, no_max_squares, {step_tensor()}, lr, options_.beta1,
                        options_.beta2, decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    } else {
      const kernels::Adam8bitMoments moments{mine[first_codes].data_ptr<std::int8_t>() + block * kBlock,
                                             mine[second_codes].data_ptr<std::uint8_t>() + block * kBlock,
                                             mine[first_scales].data_ptr<float>() + block,
                                             mine[second_scales].data_ptr<float>() + block};
      kernels::adam8bit_update(parameters.data_ptr<float>(), gradients.const_data_ptr<float>(), moments, end - begin,
                               {.lr = static_cast<float>(lr),
                                .beta1 = static_cast<float>(options_.beta1),
                                .beta2 = static_cast<float>(options_.beta2),
                                .eps = static_cast<float>(options_.eps),
                                .weight_decay = static_cast<float>(decay),
                                .coefficient = coefficient,
                                .step = steps()});
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
