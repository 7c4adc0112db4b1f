#include "device/cuda_device.hpp"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace shardmark::device {

void check_cuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) [[likely]] {
    return;
  }
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  const auto code = result == cudaErrorMemoryAllocation ? base::ExitCode::out_of_memory : base::ExitCode::failed;
  throw CudaError(code, fmt::format("{} failed on CUDA device {}: {} ({})", call, known ? std::to_string(device) : "?",
                                    cudaGetErrorName(result), cudaGetErrorString(result)));
}

namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  // At exit the driver may be gone already; there is nobody to tell.
  ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event_)); }

  [[nodiscard]] bool complete() override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // else the next launch's check would find it
      return false;
    }
    check_cuda(state, "cudaEventQuery");
    return true;
  }
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t cuda(Event& event) {
  return dynamic_cast<CudaEvent&>(event).get();
}

class CudaStream : public Stream {
 public:
  void record(Event& event) override { check_cuda(cudaEventRecord(cuda(event), stream()), "cudaEventRecord"); }
  void wait(Event& event, const Poll& /*poll*/) override {
    check_cuda(cudaStreamWaitEvent(stream(), cuda(event), 0), "cudaStreamWaitEvent");
  }
  [[nodiscard]] void* handle() override { return stream(); }
  [[nodiscard]] bool on_host() const override { return false; }

 protected:
  [[nodiscard]] virtual cudaStream_t stream() const = 0;
};

/// What LibTorch computes on in the calling thread.
class ComputeStream final : public CudaStream {
 public:
  explicit ComputeStream(int device) : device_(device) {}

 private:
  [[nodiscard]] cudaStream_t stream() const override {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
  }
  int device_;
};

class OwnStream final : public CudaStream {
 public:
  explicit OwnStream(Priority priority) {
    int lowest = 0;
    int highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::high ? highest : lowest),
               "cudaStreamCreateWithPriority");
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() override { static_cast<void>(cudaStreamDestroy(stream_)); }

 private:
  [[nodiscard]] cudaStream_t stream() const override { return stream_; }
  cudaStream_t stream_ = nullptr;
};

/// From LibTorch's allocator, so that it is counted and nothing asks the driver twice.
class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(std::size_t bytes) : data_(c10::cuda::CUDACachingAllocator::raw_alloc(bytes)), bytes_(bytes) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() override { c10::cuda::CUDACachingAllocator::raw_delete(data_); }
  [[nodiscard]] void* data() override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() override { static_cast<void>(cudaFreeHost(data_)); }
  [[nodiscard]] void* data() override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index), compute_(index) {}

  [[nodiscard]] int cuda_index() const override { return index_; }
  [[nodiscard]] bool asynchronous() const override { return true; }
  [[nodiscard]] Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(Priority priority) override {
    return std::make_unique<OwnStream>(priority);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }
  [[nodiscard]] double seconds_between(Event& from, Event& to) override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, cuda(from), cuda(to)), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  [[nodiscard]] std::unique_ptr<Memory> allocate(std::size_t bytes) override { return std::make_unique<DeviceMemory>(bytes); }
  [[nodiscard]] std::unique_ptr<Memory> allocate_pinned(std::size_t bytes) override {
    return std::make_unique<PinnedMemory>(bytes);
  }
  void read(void* into, const void* from, std::size_t bytes, const Poll& poll) override {
    if (bytes == 0) {
      return synchronize(poll);
    }
    // A copy to pageable memory would hold the host without a poll.
    copy(staging(bytes), from, bytes, cudaMemcpyDeviceToHost);
    synchronize(poll);
    std::memcpy(into, staging(bytes), bytes);
  }
  void write(void* into, const void* from, std::size_t bytes, const Poll& poll) override {
    if (bytes == 0) {
      return synchronize(poll);
    }
    std::memcpy(staging(bytes), from, bytes);
    copy(into, staging(bytes), bytes, cudaMemcpyHostToDevice);
    synchronize(poll);
  }
  void enter_thread() override { check_cuda(cudaSetDevice(index_), "cudaSetDevice"); }
  void synchronize(const Poll& poll) override {
    if (!done_) {
      done_ = make_event();
    }
    compute_.record(*done_);
    for (std::int64_t turn = 0; !done_->complete(); ++turn) {
      poll(turn);
    }
  }

 private:
  void copy(void* into, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpyAsync(into, from, bytes, kind, static_cast<cudaStream_t>(compute_.handle())), "cudaMemcpyAsync");
  }

  void* staging(std::size_t bytes) {
    if (!staging_ || staging_->bytes() < bytes) {
      staging_ = allocate_pinned(bytes);
    }
    return staging_->data();
  }

  int index_;
  ComputeStream compute_;
  std::unique_ptr<Event> done_;
  std::unique_ptr<Memory> staging_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index) {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw base::EnvironmentError(fmt::format(
        "LibTorch's CUDA kernels cannot be loaded: {}. Set Torch_DIR to a LibTorch built for CUDA and build again", dlerror()));
  }
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
  auto& context = at::globalContext();
  context.lazyInitDevice(c10::DeviceType::CUDA);
  context.setAllowTF32CuDNN(false);  // fp32 means fp32, in convolutions as in matrix products
  return std::make_unique<CudaDevice>(index);
}

void compute_repeatably() {
  // cuBLAS divides sums among as many workspaces as it has.
  SM_CHECK(setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0) == 0, "no room in the environment");
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace shardmark::device
