#include "base/random.hpp"

#include <cmath>
#include <numbers>

namespace shardmark::base {

float RandomStream::normal(std::uint64_t element) const noexcept {
  const auto words = philox(key_, element / 4, salt_);
  const std::uint64_t pair = (element % 4) / 2 * 2;
  // (0, 1] keeps the logarithm finite.
  const double radius_uniform = (static_cast<double>(words[pair]) + 1.0) * 0x1.0p-32;
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1.0p-32;
  const double radius = std::sqrt(-2.0 * std::log(radius_uniform));
  return static_cast<float>(radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

RandomPermutation::RandomPermutation(std::uint64_t seed, std::uint64_t salt, std::int64_t size) noexcept
    : key_(hash_mix(hash_mix(hash_text("permutation"), seed), salt)), size_(size) {
  while ((std::int64_t{1} << (2 * half_bits_)) < size) {
    ++half_bits_;
  }
}

std::int64_t RandomPermutation::operator()(std::int64_t position) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (philox(key_, right, round)[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

}  // namespace shardmark::base
