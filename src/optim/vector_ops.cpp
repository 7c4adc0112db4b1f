#include "optim/vector_ops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "base/vector_clones.hpp"
#include "kernels/convert.hpp"

namespace shardmark::optim {
namespace {

constexpr std::size_t kLanes = 16;
using Lanes = std::array<double, kLanes>;

SM_VECTOR_CLONES void add_floats(float* sum, const float* part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += part[i];
  }
}

/// Lane l adds the squares of elements l, l + 16, l + 32, ...
SM_VECTOR_CLONES void add_squares(const float* values, std::size_t count, double* lanes) {
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
}

SM_VECTOR_CLONES std::uint32_t largest_bits(const float* values, std::size_t count) {
  // Magnitudes of floats order as their bits do; NaN is above infinity.
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

using kernels::Bf16;

SM_VECTOR_CLONES std::uint32_t largest_bits(const Bf16* values, std::size_t count) {
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(values[i].bits & 0x7fffU);
    largest = bits > largest ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest) << 16U;
}

SM_VECTOR_CLONES void add_floats(float* sum, const Bf16* part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += kernels::Element<Bf16>::widen(part[i]);
  }
}

using kernels::convert;

template <typename T>
void convert(T* into, const T* from, std::size_t count) {
  std::memcpy(into, from, count * sizeof(T));
}

constexpr std::uint32_t kInfinity = 0x7f800000U;
// A block is moved, then looked at while it is in the nearest cache.
constexpr std::size_t kCheckedBlock = 4096;

/// Calls `move(begin, count)` block by block; true if all of `from` is finite.
template <typename From, typename Move>
bool move_checked(std::span<const From> from, Move move) {
  std::uint32_t largest = 0;
  for (std::size_t begin = 0; begin < from.size(); begin += kCheckedBlock) {
    const std::size_t count = std::min(kCheckedBlock, from.size() - begin);
    move(begin, count);
    largest = std::max(largest, largest_bits(from.data() + begin, count));
  }
  return largest < kInfinity;
}

template <typename Into, typename From>
bool copy_and_look(std::span<Into> into, std::span<const From> from) {
  return move_checked(from,
                      [&](std::size_t begin, std::size_t count) { convert(into.data() + begin, from.data() + begin, count); });
}

template <typename From>
bool add_and_look(std::span<float> sum, std::span<const From> part) {
  return move_checked(
      part, [&](std::size_t begin, std::size_t count) { add_floats(sum.data() + begin, part.data() + begin, count); });
}

}  // namespace

bool add_checked(std::span<float> sum, std::span<const float> part) {
  return add_and_look(sum, part);
}
bool add_checked(std::span<float> sum, std::span<const Bf16> part) {
  return add_and_look(sum, part);
}
bool copy_checked(std::span<float> into, std::span<const float> from) {
  return copy_and_look(into, from);
}
bool copy_checked(std::span<float> into, std::span<const Bf16> from) {
  return copy_and_look(into, from);
}
bool copy_checked(std::span<Bf16> into, std::span<const Bf16> from) {
  return copy_and_look(into, from);
}
bool copy_checked(std::span<Bf16> into, std::span<const float> from) {
  return copy_and_look(into, from);
}

void add_in_place(std::span<float> sum, std::span<const float> part) {
  add_floats(sum.data(), part.data(), sum.size());
}

double sum_of_squares(std::span<const float> values) {
  // Blocks keep each lane's partial sum short; the block sums are added in order.
  constexpr std::size_t kBlock = 4096;
  double total = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - begin);
    Lanes lanes{};
    add_squares(values.data() + begin, count, lanes.data());
    for (std::size_t i = count / kLanes * kLanes; i < count; ++i) {
      const auto value = static_cast<double>(values[begin + i]);
      lanes[i % kLanes] += value * value;
    }
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::size_t lane = 0; lane < width; ++lane) {
        lanes[lane] += lanes[lane + width];
      }
    }
    total += lanes[0];
  }
  return total;
}

float largest_magnitude(std::span<const float> values) {
  return std::bit_cast<float>(largest_bits(values.data(), values.size()));
}

int exact_scale_exponent(float largest) {
  if (largest == 0.0F) {
    return 0;
  }
  // largest < 2^(k+1), so its square < 2^(2k+2); scaled by 2^(60-2k) it stays below 2^62.
  return 60 - 2 * std::ilogb(largest);
}

ExactSquares exact_sum_of_squares(std::span<const float> values, int scale_exponent) {
  unsigned __int128 sum = 0;
  // The product of two powers of two, since 2^e alone may overflow a double for the smallest gradients.
  const double half_scale = std::ldexp(1.0, scale_exponent / 2);
  for (const float value : values) {
    const double scaled = static_cast<double>(value) * half_scale;
    sum += static_cast<std::uint64_t>(std::llrint(scaled * scaled));
  }
  return {static_cast<std::uint64_t>(sum), static_cast<std::uint64_t>(sum >> 64U)};
}

ExactSquares add(ExactSquares a, ExactSquares b) {
  const std::uint64_t low = a.low + b.low;
  return {low, a.high + b.high + (low < a.low ? 1U : 0U)};
}

double norm_of(ExactSquares sum, int scale_exponent) {
  const double value = std::ldexp(static_cast<double>(sum.high), 64) + static_cast<double>(sum.low);
  return std::ldexp(std::sqrt(value), -scale_exponent / 2);
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  // Four independent chains hide the latency of the multiplications.
  std::array<std::uint64_t, 4> chains{1, 2, 3, 4};
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  for (std::size_t i = 0; i * kWord < bytes.size(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i * kWord, std::min(kWord, bytes.size() - i * kWord));
    auto& chain = chains[i % chains.size()];
    chain = (chain ^ word) * 0x100000001b3ULL;
    chain ^= chain >> 29U;
  }
  std::uint64_t hash = bytes.size();
  for (const auto chain : chains) {
    hash = base::hash_mix(hash, chain);
  }
  return hash;
}

}  // namespace shardmark::optim
