#pragma once
// One element of a move between buffers, shared by host loops and device kernels.

#include <type_traits>

#include "kernels/magnitude.hpp"

namespace shardmark::kernels {

/// The value times `scale`; times 1 it keeps its bits, NaN's too.
template <typename From>
SM_HOST_DEVICE float scaled(From value, float scale) {
  const float wide = Element<From>::widen(value);
  return scale == 1.0F ? wide : wide * scale;
}

template <typename Into, typename From>
SM_HOST_DEVICE Into moved(From value, float scale) {
  if constexpr (std::is_same_v<Into, From>) {
    if (scale == 1.0F) {
      return value;
    }
  }
  return Element<Into>::round(scaled(value, scale));
}

}  // namespace shardmark::kernels
