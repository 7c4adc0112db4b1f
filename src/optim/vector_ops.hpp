#pragma once
// Loops over flat fp32 ranges on the host: additions, norms, hashes. Each is the oracle of a device kernel of the same
// meaning. Uses no LibTorch.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace shardmark::optim {

/// sum[i] += part[i]. Sizes equal.
void add_in_place(std::span<float> sum, std::span<const float> part);

/// As add_in_place, and as a copy; true if every value of `part` or `from` is finite. One pass over memory. bf16 is widened
/// exactly; fp32 is rounded to bf16 to nearest even.
[[nodiscard]] bool add_checked(std::span<float> sum, std::span<const float> part);
[[nodiscard]] bool add_checked(std::span<float> sum, std::span<const kernels::Bf16> part);
[[nodiscard]] bool copy_checked(std::span<float> into, std::span<const float> from);
[[nodiscard]] bool copy_checked(std::span<float> into, std::span<const kernels::Bf16> from);
[[nodiscard]] bool copy_checked(std::span<kernels::Bf16> into, std::span<const kernels::Bf16> from);
[[nodiscard]] bool copy_checked(std::span<kernels::Bf16> into, std::span<const float> from);

/// Sum of squares in double, in a fixed order that depends on the size only. NaN or Inf in, NaN or Inf out.
[[nodiscard]] double sum_of_squares(std::span<const float> values);

/// Largest magnitude; NaN if any value is NaN.
[[nodiscard]] float largest_magnitude(std::span<const float> values);

/// A sum of squares that does not depend on how values are spread over shards or in which order they are added: each square
/// (exact in double) is scaled by a power of two and rounded to an integer; integers are added in 128 bits (two words).
struct ExactSquares {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const ExactSquares&, const ExactSquares&) = default;
};
/// Exponent e such that squares of magnitudes up to `largest` fit 62 bits after scaling by 2^e. `largest` must be finite and
/// equal on all ranks (MAX over ranks); 0 gives 0.
[[nodiscard]] int exact_scale_exponent(float largest);
[[nodiscard]] ExactSquares exact_sum_of_squares(std::span<const float> values, int scale_exponent);
[[nodiscard]] ExactSquares add(ExactSquares a, ExactSquares b);
/// The norm: sqrt(sum x 2^-e), rounded as double arithmetic rounds.
[[nodiscard]] double norm_of(ExactSquares sum, int scale_exponent);

/// 64-bit hash: any flipped bit changes it. For comparing replicas, not against attackers.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes);

}  // namespace shardmark::optim
