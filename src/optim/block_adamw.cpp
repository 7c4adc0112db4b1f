#include "optim/block_adamw.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "kernels/adam8bit.hpp"

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

class BlockAdamW final : public Optimizer {
 public:
  explicit BlockAdamW(const OptimizerOptions& options) : options_(options), step_(at::zeros({}, at::kFloat)) {
    for (const auto& kind : kKinds) {
      names_.emplace_back(kind.name);
    }
  }

  void bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) override {
    layouts_.clear();
    for (const auto& range : ranges) {
      SM_CHECK(range.parameters.numel() == range.gradients.numel(), "flat parameters and gradients differ in size");
      layouts_.push_back({range.parameters.numel(), range.segments});
      check_blocks(layouts_.back());
    }
    if (!states.empty()) {
      states_ = std::move(states);
    } else if (!relayouted_) {
      states_ = zeroed(layouts_);
    }
    relayouted_ = false;
    SM_CHECK(states_.size() == ranges.size(), "optimizer states do not fit the ranges");
    ranges_ = std::move(ranges);
    const bool converts = std::ranges::any_of(ranges_, [](const Range& range) {
      return range.parameters.scalar_type() != at::kFloat || range.gradients.scalar_type() != at::kFloat;
    });
    if (converts && !scratch_[0].defined()) {
      const device::MemoryScope scope(device::MemoryCategory::workspace);
      scratch_ = {at::zeros({kChunk}, at::kFloat), at::zeros({kChunk}, at::kFloat)};
    }
  }

  void unbind() override { ranges_.clear(); }

  void relayout(const std::vector<RangeLayout>& ranges, const std::vector<StateMove>& moves) override {
    std::vector<std::vector<at::Tensor>> fresh(ranges.size());
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      for (std::size_t range = 0; range < ranges.size(); ++range) {
        fresh[range].push_back(zeroed(ranges[range], kKinds[kind]));
      }
      for (const auto& move : moves) {
        const bool small = is_small(layouts_[move.from_range], move.from);
        if (small == kKinds[kind].of_small) {
          // A tensor's tail up to the block's end moves with it.
          const std::int64_t count = (move.numel + kBlock - 1) / kBlock * kKinds[kind].in_block;
          const auto place = [&](const RangeLayout& layout, std::int64_t element) {
            return blocks_before(layout, element, small) * kKinds[kind].in_block;
          };
          fresh[move.to_range][kind]
              .narrow(0, place(ranges[move.to_range], move.to), count)
              .copy_(states_[move.from_range][kind].narrow(0, place(layouts_[move.from_range], move.from), count));
        }
      }
      for (auto& old : states_) {
        old[kind] = at::Tensor();
      }
    }
    states_ = std::move(fresh);
    layouts_ = ranges;
    relayouted_ = true;
  }

  void begin_step() override {
    ++steps_;
    step_.fill_(static_cast<float>(steps_));
  }

  void update(std::size_t range, double lr, float coefficient) override {
    for (const auto& segment : layouts_[range].segments) {
      for (std::int64_t begin = segment.begin; begin < segment.end;) {
        const std::int64_t end = converts(ranges_[range]) ? std::min(begin + kChunk, segment.end) : segment.end;
        update_stretch(range, segment, begin, end, lr, coefficient);
        begin = end;
      }
    }
  }

  [[nodiscard]] const std::vector<std::string>& state_names() const override { return names_; }
  [[nodiscard]] const std::vector<std::vector<at::Tensor>>& states() const override { return states_; }
  [[nodiscard]] std::int64_t state_bytes(const RangeLayout& range) const override {
    std::int64_t bytes = 0;
    for (const auto& kind : kKinds) {
      bytes += numel_of(range, kind) * static_cast<std::int64_t>(c10::elementSize(kind.type));
    }
    return bytes;
  }
  [[nodiscard]] std::int64_t small_below() const override { return kSmallBelow; }
  [[nodiscard]] std::int64_t steps() const override { return steps_; }

 private:
  static void check_blocks(const RangeLayout& range) {
    for (const auto& segment : range.segments) {
      SM_CHECK(segment.begin % kBlock == 0 && segment.end % kBlock == 0, "8-bit states need segments of whole blocks");
    }
  }
  static bool converts(const Range& range) {
    return range.parameters.scalar_type() != at::kFloat || range.gradients.scalar_type() != at::kFloat;
  }
  static std::int64_t numel_of(const RangeLayout& range, const KindFacts& kind) {
    return blocks_before(range, range.numel, kind.of_small) * kind.in_block;
  }
  static at::Tensor zeroed(const RangeLayout& range, const KindFacts& kind) {
    const device::MemoryScope scope(device::MemoryCategory::optimizer_state);
    return at::zeros({numel_of(range, kind)}, kind.type);
  }
  static std::vector<std::vector<at::Tensor>> zeroed(const std::vector<RangeLayout>& ranges) {
    std::vector<std::vector<at::Tensor>> states;
    for (const auto& range : ranges) {
      auto& made = states.emplace_back();
      for (const auto& kind : kKinds) {
        made.push_back(zeroed(range, kind));
      }
    }
    return states;
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
    const std::int64_t block = blocks_before(layouts_[index], begin, segment.small);
    const auto& states = states_[index];
    if (segment.small) {
      if (coefficient != 1.0F) {
        gradients.mul_(coefficient);
      }
      const std::vector<at::Tensor> first{states[first_small].narrow(0, block * kBlock, end - begin)};
      const std::vector<at::Tensor> second{states[second_small].narrow(0, block * kBlock, end - begin)};
      const at::TensorList no_max_squares;
      at::_fused_adamw_({parameters}, {gradients}, first, second, no_max_squares, {step_}, lr, options_.beta1, options_.beta2,
                        decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    } else {
      const kernels::Adam8bitMoments moments{states[first_codes].data_ptr<std::int8_t>() + block * kBlock,
                                             states[second_codes].data_ptr<std::uint8_t>() + block * kBlock,
                                             states[first_scales].data_ptr<float>() + block,
                                             states[second_scales].data_ptr<float>() + block};
      kernels::adam8bit_update(parameters.data_ptr<float>(), gradients.const_data_ptr<float>(), moments, end - begin,
                               {.lr = static_cast<float>(lr),
                                .beta1 = static_cast<float>(options_.beta1),
                                .beta2 = static_cast<float>(options_.beta2),
                                .eps = static_cast<float>(options_.eps),
                                .weight_decay = static_cast<float>(decay),
                                .coefficient = coefficient,
                                .step = steps_});
    }
    if (range.parameters.scalar_type() != at::kFloat) {
      range.parameters.narrow(0, begin, end - begin).copy_(parameters);
    }
  }

  OptimizerOptions options_;
  std::vector<std::string> names_;
  std::vector<Range> ranges_;
  std::vector<RangeLayout> layouts_;  // of the states
  std::vector<std::vector<at::Tensor>> states_;
  bool relayouted_ = false;
  std::array<at::Tensor, 2> scratch_;
  at::Tensor step_;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_block_adamw(const OptimizerOptions& options) {
  return std::make_unique<BlockAdamW>(options);
}

}  // namespace shardmark::optim
