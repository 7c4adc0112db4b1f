#pragma once
// How the states of 8-bit AdamW lie: codes and scales of large tensors, fp32 moments of small ones, each kind one after
// another. Inside the optim folder only.

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/adam8bit.hpp"
#include "optim/stateful_optimizer.hpp"

namespace shardmark::optim::block_states {

inline constexpr std::int64_t kBlock = kernels::kAdam8bitBlock;
inline constexpr std::int64_t kSmallBelow = 4096;

/// The kinds of state.
enum Kind : std::size_t { first_codes, second_codes, first_scales, second_scales, first_small, second_small };

[[nodiscard]] std::vector<std::string> names();
[[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t kind);
[[nodiscard]] at::ScalarType type_of(std::size_t kind);
[[nodiscard]] std::optional<StatePlace> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element,
                                                 std::int64_t numel);
/// Blocks of coded (or of small) segments before an element of the range.
[[nodiscard]] std::int64_t blocks_before(const RangeLayout& range, std::int64_t element, bool small);
/// Throws base::InvariantError unless segments are of whole blocks.
void check_segments(const Range& range);
/// The codes of blocks from `block` on, in the states of one range.
[[nodiscard]] kernels::Adam8bitMoments codes_at(const std::vector<at::Tensor>& states, std::int64_t block);
/// The rule without what the step brings.
[[nodiscard]] kernels::Adam8bitStep rule_of(const OptimizerOptions& options, double lr, bool decayed);

}  // namespace shardmark::optim::block_states
