#pragma once
// The arithmetic of reductions over ranks, shared by the host loops and the device kernel: one fixed binary tree, split at
// the largest power of two below the number of sources, in the accumulator's type, rounded to the stored type once.

#include <cstdint>

#include "kernels/element.hpp"

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

/// Element i of a tree over any number of sources up to 256, not yet rounded: how the device adds more than a leaf. Full leaves
/// are perfect subtrees, so they merge like the carries of a binary counter; what is left on the stack folds from the right,
/// which is the tree's shape.
template <typename Op, typename T>
SM_HOST_DEVICE typename Element<T>::Accumulator large_tree_element(const T* const* sources, int num_sources, std::int64_t i) {
  typename Element<T>::Accumulator stack[8];  // 256 sources: at most 32 leaves, 6 levels, and a rest
  int depth = 0;
  int leaf = 0;
  for (; (leaf + 1) * kTreeLeaf <= num_sources; ++leaf) {
    auto value = tree_element<Op, T, 0, kTreeLeaf>(sources + leaf * kTreeLeaf, i);
    for (int carry = leaf; (carry & 1) != 0; carry >>= 1) {
      value = Op::combine(stack[--depth], value);
    }
    stack[depth++] = value;
  }
  const T* const* rest = sources + leaf * kTreeLeaf;
  switch (num_sources - leaf * kTreeLeaf) {
    case 1: stack[depth++] = tree_element<Op, T, 0, 1>(rest, i); break;
    case 2: stack[depth++] = tree_element<Op, T, 0, 2>(rest, i); break;
    case 3: stack[depth++] = tree_element<Op, T, 0, 3>(rest, i); break;
    case 4: stack[depth++] = tree_element<Op, T, 0, 4>(rest, i); break;
    case 5: stack[depth++] = tree_element<Op, T, 0, 5>(rest, i); break;
    case 6: stack[depth++] = tree_element<Op, T, 0, 6>(rest, i); break;
    case 7: stack[depth++] = tree_element<Op, T, 0, 7>(rest, i); break;
    default: break;
  }
  auto value = stack[--depth];
  while (depth > 0) {
    value = Op::combine(stack[--depth], value);
  }
  return value;
}

}  // namespace shardmark::kernels
