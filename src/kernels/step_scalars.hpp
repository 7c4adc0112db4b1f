#pragma once
// The numbers of one step that are computed where training runs: a few doubles in the memory of the device, so that the host
// need not wait for them within the step. Plain data for host and device code.

#include <cstdint>

namespace shardmark::kernels {

struct StepScalars {
  double loss = 0;                   // this rank's, then the sum over ranks: a mean over the global batch
  double squares = 0;                // fast: sum of squared gradients, this rank's, then over ranks
  std::uint64_t exact_squares[2]{};  // ordered: the same as a 128-bit integer (low, high), scaled by `largest`
  double norm = 0;                   // L2 of the global gradient before clipping; NaN if not finite
  float largest = 0;                 // ordered: largest magnitude, this rank's, then over ranks; NaN if any value is NaN
  float coefficient = 1;             // of the gradient: min(1, clip / (norm + 1e-6)) rounded once, 1 without clipping
  std::int32_t finite = 1;           // whether the norm is
  std::int32_t applied = 0;          // whether the step changes parameters: norm and loss are finite
};

/// What an update needs of the steps before: lies beside the states.
struct UpdateState {
  std::int64_t steps = 0;       // applied so far, this one included
  std::int32_t applies = 0;     // this step
  float coefficient = 1;        // of this step's gradient
  double bias_correction1 = 1;  // 1 - beta1^steps
  double bias_correction2 = 1;  // 1 - beta2^steps
};

}  // namespace shardmark::kernels
