#pragma once
// Arithmetic over flat ranges where training runs: what reductions of gradients and their norm need. In host memory it is done
// when a call returns; on a device it is enqueued where the calling thread computes. Uses no LibTorch.

#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "device/device.hpp"
#include "kernels/step_scalars.hpp"

namespace shardmark::optim {

/// Contiguous elements, fp32 or bf16.
struct Flat {
  void* data = nullptr;
  std::int64_t count = 0;
  base::DType dtype = base::DType::fp32;
};

/// fast: a sum in double. exact: a sum of integers that does not depend on order or shards (vector_ops.hpp, ExactSquares).
enum class NormKind : std::uint8_t { fast, exact };

/// Scalars are pointers into the memory where training runs.
class FlatMath {
 public:
  virtual ~FlatMath() = default;

  /// Copies or adds `from` to `into`, rounding to nearest even where that is narrower; additions are to fp32 only. Equal
  /// counts. False if some value is known not to be finite: a device tells later, by the norm.
  virtual bool move(Flat into, Flat from, bool add) const = 0;
  /// fp32 to fp32.
  virtual void add(Flat into, Flat from) const = 0;

  /// Squares of one range more: adds to `squares`.
  virtual void add_squares(Flat values, kernels::StepScalars* scalars) const = 0;
  /// `largest` of one range more; a NaN stays.
  virtual void take_largest(Flat values, kernels::StepScalars* scalars) const = 0;
  /// With the scale that `largest` of all ranks gives: adds to `exact_squares`. Nothing if it is not finite.
  virtual void add_exact_squares(Flat values, kernels::StepScalars* scalars) const = 0;
  /// norm, finite, coefficient, applied, once loss and sums are those of all ranks. `gathered`: `parts` pairs of exact_squares.
  virtual void finish_norm(kernels::StepScalars* scalars, NormKind kind, const std::uint64_t* gathered, int parts,
                           double clip_norm) const = 0;
  /// The scalars if the host may read them at once, else nullptr.
  [[nodiscard]] virtual const kernels::StepScalars* on_host(const kernels::StepScalars* scalars) const = 0;
};

/// nullptr or a device of host memory: of the host. Lent.
[[nodiscard]] std::unique_ptr<FlatMath> make_flat_math(device::Device* device);

}  // namespace shardmark::optim
