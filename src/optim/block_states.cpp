#include "optim/block_states.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::optim::block_states {
namespace {

/// What each kind holds, and how many of its elements a block of 256 takes.
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

bool is_small(const RangeLayout& range, std::int64_t element) {
  for (const auto& segment : range.segments) {
    if (segment.begin <= element && element < segment.end) {
      return segment.small;
    }
  }
  throw base::InvariantError("an element that no segment of the range covers");
}

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& kind : kKinds) {
    names.emplace_back(kind.name);
  }
  return names;
}

std::int64_t numel_of(const RangeLayout& range, std::size_t kind) {
  return blocks_before(range, range.numel, kKinds[kind].of_small) * kKinds[kind].in_block;
}

at::ScalarType type_of(std::size_t kind) {
  return kKinds[kind].type;
}

std::optional<StatePlace> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element, std::int64_t numel) {
  const auto& facts = kKinds[kind];
  if (is_small(range, element) != facts.of_small) {
    return std::nullopt;
  }
  // A tensor's tail up to the block's end goes with it.
  return StatePlace{blocks_before(range, element, facts.of_small) * facts.in_block,
                    (numel + kBlock - 1) / kBlock * facts.in_block};
}

std::int64_t blocks_before(const RangeLayout& range, std::int64_t element, bool small) {
  std::int64_t elements = 0;
  for (const auto& segment : range.segments) {
    if (segment.small == small) {
      elements += std::clamp<std::int64_t>(element - segment.begin, 0, segment.end - segment.begin);
    }
  }
  return elements / kBlock;
}

void check_segments(const Range& range) {
  for (const auto& segment : range.segments) {
    SM_CHECK(segment.begin % kBlock == 0 && segment.end % kBlock == 0, "8-bit states need segments of whole blocks");
  }
}

kernels::Adam8bitMoments codes_at(const std::vector<at::Tensor>& states, std::int64_t block) {
  return {states[first_codes].data_ptr<std::int8_t>() + block * kBlock,
          states[second_codes].data_ptr<std::uint8_t>() + block * kBlock, states[first_scales].data_ptr<float>() + block,
          states[second_scales].data_ptr<float>() + block};
}

kernels::Adam8bitStep rule_of(const OptimizerOptions& options, double lr, bool decayed) {
  return {.lr = static_cast<float>(lr),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .eps = static_cast<float>(options.eps),
          .weight_decay = static_cast<float>(decayed ? options.weight_decay : 0.0)};
}

}  // namespace shardmark::optim::block_states
