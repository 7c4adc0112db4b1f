#include "kernels/launch.cuh"
#include "kernels/step_control.hpp"
#include "kernels/step_control_core.hpp"

namespace shardmark::kernels {
namespace {

__global__ void finish_norm_kernel(StepScalars* scalars, NormRule rule) {
  finish_norm_of(*scalars, rule);
}

__global__ void begin_update_kernel(const StepScalars* scalars, UpdateState* state, double beta1, double beta2) {
  begin_update_of(*scalars, *state, beta1, beta2);
}

}  // namespace

void finish_norm_device(StepScalars* scalars, const NormRule& rule, void* stream) {
  finish_norm_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(scalars, rule);
  check_launch("finish_norm_device");
}

void begin_update_device(const StepScalars* scalars, UpdateState* state, double beta1, double beta2, void* stream) {
  begin_update_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(scalars, state, beta1, beta2);
  check_launch("begin_update_device");
}

}  // namespace shardmark::kernels
