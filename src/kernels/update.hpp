#pragma once
// One step of Adam, AdamW or SGD over flat memory, in one pass. The host functions take host memory, the device functions
// device memory; given equal inputs both give the same bits, but for which NaN a NaN is. Nothing is changed by a step that does
// not apply.

#include "base/dtype.hpp"
#include "kernels/step_scalars.hpp"
#include "kernels/update_range.hpp"

namespace shardmark::kernels {

/// Formulas and their order are those of LibTorch's fused optimizers on the CPU (aten/src/ATen/native/cpu/FusedAdamKernel.cpp,
/// version 2.14), so that runs on both kinds of device stay close: the first moment moves by a share of the way to the
/// gradient, coefficients are worked out in double and rounded to fp32 once. Not used are what LibTorch has in places: joined
/// roundings, and that way taken from the gradient's end where the share is above a half.
struct AdamRule {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW; false: Adam, whose decay is part of the gradient
};

struct AdamMoments {
  void* first = nullptr;   // exp_avg
  void* second = nullptr;  // exp_avg_sq
  base::DType type = base::DType::fp32;
};

void adamw_update(const UpdateRange& range, const AdamMoments& moments, const AdamRule& rule, const UpdateState* state);

/// As FusedSGDKernel.cpp beside it, without dampening: the first step's gradient becomes the momentum.
struct SgdRule {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
};

/// `momentum` may be nullptr if the rule has none.
void sgd_update(const UpdateRange& range, void* momentum, base::DType momentum_type, const SgdRule& rule,
                const UpdateState* state);

#ifdef SM_WITH_CUDA
/// These enqueue on `stream` (a cudaStream_t) and return. They throw base::Error if the launch fails.
void adamw_update_device(const UpdateRange& range, const AdamMoments& moments, const AdamRule& rule, const UpdateState* state,
                         void* stream);
void sgd_update_device(const UpdateRange& range, void* momentum, base::DType momentum_type, const SgdRule& rule,
                       const UpdateState* state, void* stream);
#endif

}  // namespace shardmark::kernels
