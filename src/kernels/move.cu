#include "kernels/float_types.hpp"
#include "kernels/launch.cuh"
#include "kernels/move.hpp"
#include "kernels/move_core.hpp"

namespace shardmark::kernels {
namespace {

/// As many elements as 16 bytes hold of the wider type.
template <typename Into, typename From>
inline constexpr int kPack = 16 / (sizeof(Into) > sizeof(From) ? sizeof(Into) : sizeof(From));

template <bool Add, typename Into, typename From>
__global__ void move_kernel(Into* into, const From* from, Split split, float scale, std::int32_t* not_finite) {
  constexpr int kSize = kPack<Into, From>;
  bool finite = true;
  const auto one = [&](Into before, From value) {
    finite = finite && is_finite(value);
    if constexpr (Add) {
      return before + scaled(value, scale);
    } else {
      return moved<Into>(value, scale);
    }
  };
  for_each_in_split<kSize>(
      split,
      [&](std::int64_t i) {
        const auto values = load_pack<kSize>(from + i);
        Pack<Into, kSize> out;
        if constexpr (Add) {
          out = load_pack<kSize>(into + i);
        }
        for (int k = 0; k < kSize; ++k) {
          out.values[k] = one(out.values[k], values.values[k]);
        }
        store_pack(into + i, out);
      },
      [&](std::int64_t i) { into[i] = one(Add ? into[i] : Into{}, from[i]); });
  if (!finite && not_finite != nullptr) {
    *not_finite = 1;  // whoever writes, writes the same
  }
}

}  // namespace

void move_scaled_device(const Move& move, void* stream) {
  SM_CHECK(!move.add || move.into_type == base::DType::fp32, "a move adds to fp32 only");
  if (move.count == 0) {
    return;
  }
  with_float_type(move.into_type, "the target of a move", [&](auto into_zero) {
    with_float_type(move.from_type, "the source of a move", [&](auto from_zero) {
      using Into = decltype(into_zero);
      using From = decltype(from_zero);
      auto* into = static_cast<Into*>(move.into);
      const auto* from = static_cast<const From*>(move.from);
      auto* cuda_stream = static_cast<cudaStream_t>(stream);
      const Split split = split_of<kPack<Into, From>>(move.count, {{into, sizeof(Into)}, {from, sizeof(From)}});
      if constexpr (std::is_same_v<Into, float>) {
        if (move.add) {
          move_kernel<true><<<blocks_for(split), kThreads, 0, cuda_stream>>>(into, from, split, move.scale, move.not_finite);
          return;
        }
      }
      move_kernel<false><<<blocks_for(split), kThreads, 0, cuda_stream>>>(into, from, split, move.scale, move.not_finite);
    });
  });
  check_launch("move_scaled_device");
}

}  // namespace shardmark::kernels
