#include "kernels/float_types.hpp"
#include "kernels/launch.cuh"
#include "kernels/squares.hpp"
#include "kernels/squares_core.hpp"

namespace shardmark::kernels {
namespace {

static_assert(kThreads == kSquaresLanes, "a thread is a lane");

/// Of 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

/// The tree over the block's threads; the result is thread 0's alone.
template <typename A, typename Combine>
__device__ A block_tree(A mine, Combine combine) {
  __shared__ A lanes[kThreads];
  lanes[threadIdx.x] = mine;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      lanes[threadIdx.x] = combine(lanes[threadIdx.x], lanes[threadIdx.x + width]);
    }
  }
  return lanes[0];
}

struct AddDoubles {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct AddWides {
  __device__ Wide operator()(Wide a, Wide b) const { return add_wide(a, b); }
};
struct LargerBits {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a > b ? a : b; }
};

template <typename T>
__global__ void squares_kernel(const T* values, std::int64_t count, bool aligned, double* partial) {
  double sum = 0;
  for (std::int64_t begin = first_item() * kSquaresGroup; begin < count; begin += item_stride() * kSquaresGroup) {
    if (aligned && begin + kSquaresGroup <= count) {
      const auto pack = load_pack<kSquaresGroup>(values + begin);
      for (const T value : pack.values) {
        sum = add_square(sum, value);
      }
    } else {
      const std::int64_t end = begin + kSquaresGroup < count ? begin + kSquaresGroup : count;
      for (std::int64_t i = begin; i < end; ++i) {
        sum = add_square(sum, values[i]);
      }
    }
  }
  sum = block_tree(sum, AddDoubles{});
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void add_partial_kernel(const double* partial, unsigned num_partial, StepScalars* scalars) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < num_partial; i += kThreads) {
    sum += partial[i];
  }
  sum = block_tree(sum, AddDoubles{});
  if (threadIdx.x == 0) {
    scalars->squares += sum;
  }
}

template <typename T>
__global__ void largest_kernel(const T* values, Split split, StepScalars* scalars) {
  const LargerBits larger;
  std::uint32_t most = 0;
  for_each_in_split<kPack<T>>(
      split,
      [&](std::int64_t i) {
        const auto pack = load_pack<kPack<T>>(values + i);
        for (const T value : pack.values) {
          most = larger(most, magnitude_bits(value));
        }
      },
      [&](std::int64_t i) { most = larger(most, magnitude_bits(values[i])); });
  most = block_tree(most, larger);
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<unsigned*>(&scalars->largest), most);
  }
}

template <typename T>
__global__ void exact_squares_kernel(const T* values, Split split, StepScalars* scalars) {
  const float largest = scalars->largest;
  if (!is_finite(largest)) {
    return;
  }
  const double half_scale = std::ldexp(1.0, exact_half_exponent(largest));
  Wide sum{0, 0};
  for_each_in_split<kPack<T>>(
      split,
      [&](std::int64_t i) {
        const auto pack = load_pack<kPack<T>>(values + i);
        for (const T value : pack.values) {
          sum = add_wide(sum, {exact_square(value, half_scale), 0});
        }
      },
      [&](std::int64_t i) {
        sum = add_wide(sum, {exact_square(values[i], half_scale), 0});
      });
  sum = block_tree(sum, AddWides{});
  if (threadIdx.x == 0) {
    // Whoever makes the low word wrap carries: so many carries as wraps, whatever the order.
    using Word = unsigned long long;
    static_assert(sizeof(Word) == sizeof(std::uint64_t));
    const Word before = atomicAdd(reinterpret_cast<Word*>(&scalars->exact_squares[0]), static_cast<Word>(sum.low));
    const Word carry = before + static_cast<Word>(sum.low) < before ? 1 : 0;
    atomicAdd(reinterpret_cast<Word*>(&scalars->exact_squares[1]), static_cast<Word>(sum.high) + carry);
  }
}

}  // namespace

std::int64_t sum_of_squares_scratch_bytes() {
  return kSquaresBlocks * static_cast<std::int64_t>(sizeof(double));
}

void sum_of_squares_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* scratch,
                           void* stream) {
  if (count == 0) {
    return;
  }
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  auto* partial = static_cast<double*>(scratch);
  const unsigned blocks = blocks_for((count + kSquaresGroup - 1) / kSquaresGroup, kSquaresBlocks);
  with_float_type(type, "values", [&](auto zero) {
    const auto* typed = static_cast<const decltype(zero)*>(values);
    const bool aligned = reinterpret_cast<std::uintptr_t>(values) % 16 == 0;
    squares_kernel<<<blocks, kThreads, 0, cuda_stream>>>(typed, count, aligned, partial);
  });
  check_launch("sum_of_squares_device");
  add_partial_kernel<<<1, kThreads, 0, cuda_stream>>>(partial, blocks, scalars);
  check_launch("sum_of_squares_device");
}

void largest_magnitude_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* stream) {
  if (count == 0) {
    return;
  }
  with_float_type(type, "values", [&](auto zero) {
    using T = decltype(zero);
    const Split split = split_of<kPack<T>>(count, {{values, sizeof(T)}});
    largest_kernel<<<blocks_for(split), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const T*>(values), split,
                                                                                          scalars);
  });
  check_launch("largest_magnitude_device");
}

void exact_sum_of_squares_device(const void* values, base::DType type, std::int64_t count, StepScalars* scalars, void* stream) {
  if (count == 0) {
    return;
  }
  with_float_type(type, "values", [&](auto zero) {
    using T = decltype(zero);
    const Split split = split_of<kPack<T>>(count, {{values, sizeof(T)}});
    exact_squares_kernel<<<blocks_for(split), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const T*>(values),
                                                                                                split, scalars);
  });
  check_launch("exact_sum_of_squares_device");
}

}  // namespace shardmark::kernels
