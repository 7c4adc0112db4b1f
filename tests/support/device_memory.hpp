#pragma once
// Memory of the device that starts as a copy of the host's, for tests and benchmarks of device kernels. Knows the CUDA runtime
// only.

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::testing {

inline void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
}

/// Why nothing can run on a device here; empty: they can.
inline std::string why_no_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) {
    return {};
  }
  return std::string("no CUDA device here: ") + (error != cudaSuccess ? cudaGetErrorString(error) : "none is visible");
}

/// Device memory that starts as a copy of host bytes; `offset` bytes lie before it, so that it need not be aligned.
class DeviceBytes {
 public:
  DeviceBytes(const void* from, std::size_t size, std::size_t offset = 0) : size_(size), offset_(offset) {
    check_cuda(cudaMalloc(&memory_, offset + size + 1), "cudaMalloc");
    check_cuda(cudaMemcpy(data(), from, size, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  }
  DeviceBytes(DeviceBytes&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), offset_(other.offset_) {}
  DeviceBytes& operator=(DeviceBytes&&) = delete;
  ~DeviceBytes() { static_cast<void>(cudaFree(memory_)); }

  [[nodiscard]] void* data() const { return static_cast<std::byte*>(memory_) + offset_; }
  /// Waits for the kernels of the default stream.
  void copy_to(void* to) const { check_cuda(cudaMemcpy(to, data(), size_, cudaMemcpyDeviceToHost), "cudaMemcpy to the host"); }

 private:
  void* memory_ = nullptr;
  std::size_t size_;
  std::size_t offset_;
};

/// Device memory of zeros.
class ZeroedDeviceBytes {
 public:
  explicit ZeroedDeviceBytes(std::size_t size) {
    check_cuda(cudaMalloc(&memory_, size), "cudaMalloc");
    check_cuda(cudaMemset(memory_, 0, size), "cudaMemset");
  }
  ZeroedDeviceBytes(const ZeroedDeviceBytes&) = delete;
  ZeroedDeviceBytes& operator=(const ZeroedDeviceBytes&) = delete;
  ~ZeroedDeviceBytes() { static_cast<void>(cudaFree(memory_)); }

  [[nodiscard]] void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

/// Typed elements on the device, `shift` elements behind an aligned address.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from, std::size_t shift = 0)
      : bytes_(from.data(), from.size() * sizeof(T), shift * sizeof(T)), count_(from.size()) {}
  explicit DeviceArray(const T& from) : DeviceArray(std::vector<T>{from}) {}

  [[nodiscard]] T* data() const { return static_cast<T*>(bytes_.data()); }
  /// Waits for the kernels of the default stream.
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> host(count_);
    bytes_.copy_to(host.data());
    return host;
  }
  [[nodiscard]] T value() const { return values().front(); }

 private:
  DeviceBytes bytes_;
  std::size_t count_;
};

}  // namespace shardmark::testing
