#include "optim/flat_math.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.hpp"
#include "optim/vector_ops.hpp"
#ifdef SM_WITH_CUDA
#include "optim/cuda_math.hpp"
#endif

namespace shardmark::optim {
namespace {

template <typename T>
std::span<T> elements(Flat flat) {
  return {static_cast<T*>(flat.data), static_cast<std::size_t>(flat.count)};
}

/// Calls `use` with fp32 stretches of the range; bf16 is widened, a cache's worth at a time.
template <typename Use>
void for_each_stretch(Flat values, const Use& use) {
  if (values.dtype == base::DType::fp32) {
    use(std::span<const float>(elements<const float>(values)));
    return;
  }
  constexpr std::size_t kChunk = 16 * 1024;
  std::array<float, kChunk> widened;
  const auto all = elements<const kernels::Bf16>(values);
  for (std::size_t begin = 0; begin < all.size(); begin += kChunk) {
    const auto part = all.subspan(begin, std::min(kChunk, all.size() - begin));
    const std::span<float> wide(widened.data(), part.size());
    static_cast<void>(copy_checked(wide, part));
    use(std::span<const float>(wide));
  }
}

class HostMath final : public FlatMath {
 public:
  bool move(Flat into, Flat from, bool add) const override {
    if (from.dtype == base::DType::fp32) {
      return move_from(into, elements<const float>(from), add);
    }
    return move_from(into, elements<const kernels::Bf16>(from), add);
  }
  void add(Flat into, Flat from) const override { add_in_place(elements<float>(into), elements<const float>(from)); }

  void add_squares(Flat values, kernels::StepScalars* scalars) const override {
    for_each_stretch(values, [&](std::span<const float> part) { scalars->squares += sum_of_squares(part); });
  }
  void take_largest(Flat values, kernels::StepScalars* scalars) const override {
    for_each_stretch(values, [&](std::span<const float> part) {
      const float here = largest_magnitude(part);
      scalars->largest = std::isnan(here) || here > scalars->largest ? here : scalars->largest;
    });
  }
  void add_exact_squares(Flat values, kernels::StepScalars* scalars) const override {
    if (!std::isfinite(scalars->largest)) {
      return;
    }
    ExactSquares sum{scalars->exact_squares[0], scalars->exact_squares[1]};
    const int exponent = exact_scale_exponent(scalars->largest);
    for_each_stretch(values, [&](std::span<const float> part) { sum = optim::add(sum, exact_sum_of_squares(part, exponent)); });
    scalars->exact_squares[0] = sum.low;
    scalars->exact_squares[1] = sum.high;
  }
  void finish_norm(kernels::StepScalars* scalars, NormKind kind, const std::uint64_t* gathered, int parts,
                   double clip_norm) const override {
    scalars->norm = kind == NormKind::fast ? std::sqrt(scalars->squares) : exact_norm(*scalars, gathered, parts);
    scalars->finite = std::isfinite(scalars->norm) ? 1 : 0;
    scalars->applied = scalars->finite != 0 && std::isfinite(scalars->loss) ? 1 : 0;
    scalars->coefficient = clip_norm > 0 ? static_cast<float>(std::min(1.0, clip_norm / (scalars->norm + 1e-6))) : 1.0F;
  }
  [[nodiscard]] const kernels::StepScalars* on_host(const kernels::StepScalars* scalars) const override { return scalars; }

 private:
  template <typename From>
  static bool move_from(Flat into, std::span<const From> from, bool add) {
    if (into.dtype == base::DType::fp32) {
      return add ? add_checked(elements<float>(into), from) : copy_checked(elements<float>(into), from);
    }
    SM_CHECK(!add && into.dtype == base::DType::bf16, "gradients are added in fp32");
    return copy_checked(elements<kernels::Bf16>(into), from);
  }

  static double exact_norm(const kernels::StepScalars& scalars, const std::uint64_t* gathered, int parts) {
    if (!std::isfinite(scalars.largest)) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    ExactSquares total;
    for (int i = 0; i < parts; ++i) {
      total = optim::add(total, {gathered[2 * i], gathered[2 * i + 1]});
    }
    return norm_of(total, exact_scale_exponent(scalars.largest));
  }
};

}  // namespace

std::unique_ptr<FlatMath> make_flat_math(device::Device* device) {
  if (device == nullptr || device->cuda_index() < 0) {
    return std::make_unique<HostMath>();
  }
#ifdef SM_WITH_CUDA
  return make_cuda_math(*device);
#else
  throw base::InvariantError("a CUDA device in a build without CUDA");
#endif
}

}  // namespace shardmark::optim
