#pragma once
// Rows of stored elements for tests of kernels, and what one rounding of their type may cost.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "kernels/element.hpp"

namespace shardmark::testing {

/// Half a unit in the last place of fp32, relative: what one operation may lose.
inline constexpr double kFp32Rounding = 0x1.0p-24;

/// What storing an fp32 result as T may lose beside that.
template <typename T>
inline constexpr double kStoring = 0;
template <>
inline constexpr double kStoring<kernels::Bf16> = 0x1.0p-8;

/// None, one, around a warp, and more than whole vectors and thread blocks.
inline constexpr std::array<std::int64_t, 5> kKernelSizes{0, 1, 31, 33, (std::int64_t{1} << 20) + 7};

template <typename T>
inline constexpr base::DType kTypeOf = base::DType::fp32;
template <>
inline constexpr base::DType kTypeOf<kernels::Bf16> = base::DType::bf16;

template <typename T>
double value_of(T element) {
  return static_cast<double>(kernels::Element<T>::widen(element));
}

/// Normal numbers times `scale`, the same for equal names.
template <typename T>
std::vector<T> normal_elements(std::string_view name, std::int64_t count, float scale = 1) {
  const base::RandomStream stream(5, name, 0);
  std::vector<T> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    elements.push_back(kernels::Element<T>::round(stream.normal(static_cast<std::uint64_t>(i)) * scale));
  }
  return elements;
}

}  // namespace shardmark::testing
