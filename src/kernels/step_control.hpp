#pragma once
// Between gradients and update: from a step's sums to its norm and clipping, and on to what optimizers read. The host functions
// take host memory, the device functions device memory, `gathered` included; there one thread does all.

#include <cstdint>

#include "kernels/step_scalars.hpp"

namespace shardmark::kernels {

struct NormRule {
  double clip = 0;  // 0 = none
  /// Given: the norm is the exact one, of the sums of all ranks' `exact_squares`, one pair (low, high) after another, and of
  /// `largest`, which is that of all ranks. nullptr: it is that of `squares`, which is the sum over ranks.
  const std::uint64_t* gathered = nullptr;
  int num_gathered = 0;
};

/// Sets `norm`, `finite`, `coefficient` and `applied` from the sums and from `loss`. A norm that is not finite leaves a
/// coefficient without meaning.
void finish_norm(StepScalars* scalars, const NormRule& rule);

/// Takes a step up: if it applies, counts it and sets its bias corrections. If not, only `applies` and `coefficient` change.
/// The device's power function may differ from the host's in the last bits of a bias correction.
void begin_update(const StepScalars* scalars, UpdateState* state, double beta1, double beta2);

#ifdef SM_WITH_CUDA
/// These enqueue on `stream` (a cudaStream_t) and return. They throw base::Error if the launch fails.
void finish_norm_device(StepScalars* scalars, const NormRule& rule, void* stream);
void begin_update_device(const StepScalars* scalars, UpdateState* state, double beta1, double beta2, void* stream);
#endif

}  // namespace shardmark::kernels
