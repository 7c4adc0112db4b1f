#pragma once
// The arithmetic of reductions over ranks, shared by the host loops and the device kernel: one fixed binary tree, split at
// the largest power of two below the number of sources, in the accumulator's type, rounded to the stored type once.

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define SM_HOST_DEVICE __host__ __device__
#else
#define SM_HOST_DEVICE
#endif

namespace shardmark::kernels {

/// Sources up to here are added in registers; larger trees are built of subtrees of this size (a power of two).
inline constexpr int kTreeLeaf = 8;

/// Where a tree of n >= 2 sources splits: the largest power of two below n.
SM_HOST_DEVICE constexpr int tree_split(int n) {
  int split = 1;
  while (split * 2 < n) {
    split *= 2;
  }
  return split;
}

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

struct Add {
  template <typename A>
  SM_HOST_DEVICE static A combine(A left, A right) {
    return left + right;
  }
  /// Overflow wraps, as in two's complement, instead of being undefined.
  SM_HOST_DEVICE static std::int64_t combine(std::int64_t left, std::int64_t right) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
  }
};

/// A NaN on either side wins, so that it is never lost on the way.
struct Max {
  template <typename A>
  SM_HOST_DEVICE static A combine(A left, A right) {
    return (left > right || left != left) ? left : right;
  }
};

struct Min {
  template <typename A>
  SM_HOST_DEVICE static A combine(A left, A right) {
    return (left < right || left != left) ? left : right;
  }
};

/// Element `i` of the tree over sources First .. First + N - 1, not yet rounded.
template <typename Op, typename T, int First, int N>
SM_HOST_DEVICE inline typename Element<T>::Accumulator tree_element(const T* const* sources, std::int64_t i) {
  if constexpr (N == 1) {
    return Element<T>::widen(sources[First][i]);
  } else {
    constexpr int kSplit = tree_split(N);
    return Op::combine(tree_element<Op, T, First, kSplit>(sources, i),
                       tree_element<Op, T, First + kSplit, N - kSplit>(sources, i));
  }
}

}  // namespace shardmark::kernels
