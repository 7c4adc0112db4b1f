#pragma once
// How stored elements are widened for arithmetic and rounded back, shared by host loops and device kernels.

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define SM_HOST_DEVICE __host__ __device__
#else
#define SM_HOST_DEVICE
#endif

namespace shardmark::kernels {

struct Bf16 {
  std::uint16_t bits;
};

/// How a stored element is widened to the type that sums are kept in, and rounded back.
template <typename T>
struct Element {
  using Accumulator = T;
  SM_HOST_DEVICE static T widen(T value) { return value; }
  SM_HOST_DEVICE static T round(T value) { return value; }
};

template <>
struct Element<Bf16> {
  using Accumulator = float;
  SM_HOST_DEVICE static float widen(Bf16 value) {
    const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16U;
    float wide = 0;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
  }
  /// To nearest even, as base::round_bf16, but without a branch and callable on the device.
  SM_HOST_DEVICE static Bf16 round(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (bits >> 16U) | 0x0040U;
    return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded)};
  }
};

/// Sums wrap modulo 256.
template <>
struct Element<std::uint8_t> {
  using Accumulator = std::uint32_t;
  SM_HOST_DEVICE static std::uint32_t widen(std::uint8_t value) { return value; }
  SM_HOST_DEVICE static std::uint8_t round(std::uint32_t value) { return static_cast<std::uint8_t>(value); }
};

}  // namespace shardmark::kernels
