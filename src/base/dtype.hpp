#pragma once
// Element types that parameters, gradients and messages may have.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardmark::base {

enum class DType : std::uint8_t { fp32, bf16, fp64, int64, uint8 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp32: return 4;
    case DType::bf16: return 2;
    case DType::fp64: return 8;
    case DType::int64: return 8;
    case DType::uint8: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp64: return "fp64";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
  }
  return "?";
}

/// bf16 bits to fp32, exact.
[[nodiscard]] inline float widen_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// fp32 to bf16 bits, rounded to nearest even; NaN stays NaN.
[[nodiscard]] inline std::uint16_t round_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16U) | 0x0040U);
  }
  const std::uint32_t bias = 0x7fffU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>((bits + bias) >> 16U);
}

}  // namespace shardmark::base
