#include "kernels/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/tree_sum_core.hpp"

namespace shardmark::kernels {
namespace {

/// Elements per block of a tree with more sources than a leaf: three levels of partial sums stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

#if defined(__x86_64__)
template <typename Loop>
[[gnu::target("avx2")]] void run_avx2(Loop&& loop) {
  loop();
}
#endif

/// Runs a loop whose body is inlined, with the widest vectors that this processor has of those we compile for: a plain
/// build would get 16-byte ones only. Chosen here, not by an ifunc, which sanitizers do not survive.
template <typename Loop>
void vectorised(Loop&& loop) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) {
    return run_avx2(loop);
  }
#endif
  loop();
}

// The loops below read and write element i only, so `out` may be one of the sources: ivdep tells the vectoriser.

template <typename T, int N>
std::array<const T*, static_cast<std::size_t>(N)> advanced(const T* const* sources, std::int64_t begin) {
  std::array<const T*, static_cast<std::size_t>(N)> local;  // locals: the compiler knows that stores do not change them
  for (std::size_t s = 0; s < local.size(); ++s) {
    local[s] = sources[s] + begin;
  }
  return local;
}

template <typename Op, typename T, int N>
void reduce_leaf(const T* const* sources, T* out, std::int64_t count) {
  vectorised([ local = advanced<T, N>(sources, 0), out, count ]() __attribute__((always_inline)) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = Element<T>::round(tree_element<Op, T, 0, N>(local.data(), i));
    }
  });
}

template <typename Op, typename T, int N>
void reduce_partial(const T* const* sources, std::int64_t begin, typename Element<T>::Accumulator* out, std::int64_t count) {
  vectorised([ local = advanced<T, N>(sources, begin), out, count ]() __attribute__((always_inline)) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = tree_element<Op, T, 0, N>(local.data(), i);
    }
  });
}

/// Calls `body` with the number of sources as a compile-time constant.
template <typename Body>
void with_leaf_size(int num_sources, Body&& body) {
  switch (num_sources) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 3: return body(std::integral_constant<int, 3>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 5: return body(std::integral_constant<int, 5>{});
    case 6: return body(std::integral_constant<int, 6>{});
    case 7: return body(std::integral_constant<int, 7>{});
    default: return body(std::integral_constant<int, kTreeLeaf>{});
  }
}

/// One block of the tree over `sources`, not rounded, into `out`.
template <typename Op, typename T>
void reduce_block(const T* const* sources, int num_sources, std::int64_t begin, typename Element<T>::Accumulator* out,
                  std::int64_t count) {
  if (num_sources <= kTreeLeaf) {
    with_leaf_size(num_sources, [&](auto size) { reduce_partial<Op, T, size()>(sources, begin, out, count); });
    return;
  }
  const int split = tree_split(num_sources);
  std::array<typename Element<T>::Accumulator, kBlock> right;
  reduce_block<Op, T>(sources, split, begin, out, count);
  reduce_block<Op, T>(sources + split, num_sources - split, begin, right.data(), count);
  vectorised([ out, other = right.data(), count ]() __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = Op::combine(out[i], other[i]);
    }
  });
}

template <typename Op, typename T>
void reduce(const void* const* sources, int num_sources, void* out, std::int64_t count) {
  // A pointer to T read from an array of pointers to void: same representation, as every platform of MPI has it.
  const auto* typed = reinterpret_cast<const T* const*>(sources);
  auto* target = static_cast<T*>(out);
  if (num_sources <= kTreeLeaf) {
    with_leaf_size(num_sources, [&](auto size) { reduce_leaf<Op, T, size()>(typed, target, count); });
    return;
  }
  std::array<typename Element<T>::Accumulator, kBlock> sums;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    reduce_block<Op, T>(typed, num_sources, begin, sums.data(), length);
    vectorised([ to = target + begin, from = sums.data(), length ]() __attribute__((always_inline)) {
      for (std::int64_t i = 0; i < length; ++i) {
        to[i] = Element<T>::round(from[i]);
      }
    });
  }
}

template <typename T>
void reduce_by_operation(const void* const* sources, int num_sources, void* out, std::int64_t count, TreeOperation operation) {
  switch (operation) {
    case TreeOperation::sum: return reduce<Add, T>(sources, num_sources, out, count);
    case TreeOperation::max: return reduce<Max, T>(sources, num_sources, out, count);
    case TreeOperation::min: return reduce<Min, T>(sources, num_sources, out, count);
  }
}

}  // namespace

void tree_reduce(const void* const* sources, int num_sources, void* out, std::int64_t count, base::DType dtype,
                 TreeOperation operation) {
  SM_CHECK(num_sources > 0, "a reduction needs a source");
  if (num_sources == 1 && sources[0] == out) {
    return;
  }
  switch (dtype) {
    case base::DType::fp32: return reduce_by_operation<float>(sources, num_sources, out, count, operation);
    case base::DType::bf16: return reduce_by_operation<Bf16>(sources, num_sources, out, count, operation);
    case base::DType::fp64: return reduce_by_operation<double>(sources, num_sources, out, count, operation);
    case base::DType::int64: return reduce_by_operation<std::int64_t>(sources, num_sources, out, count, operation);
    case base::DType::uint8: return reduce_by_operation<std::uint8_t>(sources, num_sources, out, count, operation);
  }
}

void tree_sum_widened(const void* const* sources, int num_sources, float* out, std::int64_t count) {
  SM_CHECK(num_sources > 0, "a reduction needs a source");
  const auto* typed = reinterpret_cast<const Bf16* const*>(sources);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<Add, Bf16>(typed, num_sources, begin, out + begin, std::min(kBlock, count - begin));
  }
}

}  // namespace shardmark::kernels
