#pragma once
// A CUDA device: streams, events and memory of CUDA, computation on LibTorch's current stream. Libtorch_cuda.so, half a
// gigabyte of kernels, is loaded when the first device is taken up, so that runs on the CPU do not carry it.

#include <cuda_runtime.h>

#include <memory>

#include "base/error.hpp"
#include "device/device.hpp"

namespace shardmark::device {

/// A failed CUDA call, with the call, the code's name and text, and the device (exit 1; out of memory: 6).
class CudaError : public base::Error {
 public:
  CudaError(base::ExitCode code, const std::string& message) : Error(code, message) {}
};

/// Throws CudaError with the call's name unless `result` is cudaSuccess.
void check_cuda(cudaError_t result, const char* call);

/// Takes up the visible device `index` for this process: sets it as the current one and initialises LibTorch for it. Throws
/// EnvironmentError if LibTorch's CUDA side cannot be loaded, CudaError.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(int index);

/// From now on LibTorch chooses kernels that give the same bits in every run where it has them, and warns where it has none.
/// After make_cuda_device, before the first matrix product.
void compute_repeatably();

}  // namespace shardmark::device
