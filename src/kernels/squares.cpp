#include "kernels/squares.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/float_types.hpp"
#include "kernels/squares_core.hpp"

namespace shardmark::kernels {
namespace {

using Lanes = std::array<double, kSquaresLanes>;

double tree_of(Lanes& lanes) {
  for (std::size_t width = lanes.size() / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

/// Block by block, so that memory is read in stretches rather than lane by lane.
template <typename T>
double squares_of(const T* values, std::int64_t count) {
  constexpr std::int64_t kStretch = std::int64_t{kSquaresGroup} * kSquaresLanes;
  Lanes totals{};
  for (std::int64_t block = 0; block < kSquaresBlocks && block * kStretch < count; ++block) {
    Lanes lanes{};
    for (std::int64_t begin = block * kStretch; begin < count; begin += kSquaresBlocks * kStretch) {
      const std::int64_t end = std::min(begin + kStretch, count);
      for (std::int64_t i = begin; i < end; ++i) {
        double& lane = lanes[static_cast<std::size_t>((i - begin) / kSquaresGroup)];
        lane = add_square(lane, values[i]);
      }
    }
    totals[static_cast<std::size_t>(block % kSquaresLanes)] += tree_of(lanes);
  }
  return tree_of(totals);
}

}  // namespace

void sum_of_squares(const void* values, base::DType type, std::int64_t count, StepScalars* scalars) {
  with_float_type(type, "values",
                  [&](auto zero) { scalars->squares += squares_of(static_cast<const decltype(zero)*>(values), count); });
}

void largest_magnitude(const void* values, base::DType type, std::int64_t count, StepScalars* scalars) {
  with_float_type(type, "values", [&](auto zero) {
    const auto* typed = static_cast<const decltype(zero)*>(values);
    std::uint32_t most = magnitude_bits(scalars->largest);
    for (std::int64_t i = 0; i < count; ++i) {
      most = std::max(most, magnitude_bits(typed[i]));
    }
    scalars->largest = std::bit_cast<float>(most);
  });
}

void exact_sum_of_squares(const void* values, base::DType type, std::int64_t count, StepScalars* scalars) {
  if (!is_finite(scalars->largest)) {
    return;
  }
  with_float_type(type, "values", [&](auto zero) {
    const auto* typed = static_cast<const decltype(zero)*>(values);
    const double half_scale = std::ldexp(1.0, exact_half_exponent(scalars->largest));
    Wide sum{scalars->exact_squares[0], scalars->exact_squares[1]};
    for (std::int64_t i = 0; i < count; ++i) {
      sum = add_wide(sum, {exact_square(typed[i], half_scale), 0});
    }
    scalars->exact_squares[0] = sum.low;
    scalars->exact_squares[1] = sum.high;
  });
}

}  // namespace shardmark::kernels
