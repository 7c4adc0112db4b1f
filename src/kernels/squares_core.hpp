#pragma once
// The arithmetic of sums of squares and largest magnitudes over gradients, shared by host loops and device kernels.
//
// The sum in double has one order, which depends on the number of elements alone: groups of 8 elements go round 1024 x 256
// lanes, the lanes of each 256 are added as a tree, the 1024 sums go round 256 lanes, and those are added as a tree. (The
// square of an fp32 value is exact in double, so only additions round.)

#include <cmath>
#include <cstdint>

#include "kernels/magnitude.hpp"

namespace shardmark::kernels {

inline constexpr int kSquaresGroup = 8;
inline constexpr int kSquaresLanes = 256;
inline constexpr std::int64_t kSquaresBlocks = 1024;

template <typename T>
SM_HOST_DEVICE double add_square(double sum, T element) {
  const auto value = static_cast<double>(Element<T>::widen(element));
  return sum + value * value;
}

/// A 128-bit count.
struct Wide {
  std::uint64_t low;
  std::uint64_t high;
};
SM_HOST_DEVICE inline Wide add_wide(Wide a, Wide b) {
  const std::uint64_t low = a.low + b.low;
  return {low, a.high + b.high + (low < a.low ? 1U : 0U)};
}

/// Half of the exponent e of optim::exact_scale_exponent, which is even: squares of magnitudes up to `largest` stay below 2^62
/// when scaled by 2^e. `largest` is finite.
SM_HOST_DEVICE inline int exact_half_exponent(float largest) {
  return largest == 0.0F ? 0 : 30 - std::ilogb(largest);
}

/// The scaled square, rounded to an integer (to nearest even).
template <typename T>
SM_HOST_DEVICE std::uint64_t exact_square(T element, double half_scale) {
  const double scaled = static_cast<double>(Element<T>::widen(element)) * half_scale;
  return static_cast<std::uint64_t>(std::llrint(scaled * scaled));
}

}  // namespace shardmark::kernels
