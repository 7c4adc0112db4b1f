#pragma once
// Magnitudes of stored elements as the bits of an fp32 value: they order as the magnitudes do, infinity above every number and
// NaN above infinity. For host and device code.

#include <cstdint>
#include <cstring>

#include "kernels/element.hpp"

namespace shardmark::kernels {

inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;

SM_HOST_DEVICE inline std::uint32_t magnitude_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffffU;
}
SM_HOST_DEVICE inline std::uint32_t magnitude_bits(Bf16 value) {
  return (static_cast<std::uint32_t>(value.bits) << 16U) & 0x7fffffffU;
}

template <typename T>
SM_HOST_DEVICE bool is_finite(T value) {
  return magnitude_bits(value) < kInfinityBits;
}

}  // namespace shardmark::kernels
