#include "device/cuda_copy_queue.hpp"

#include <cuda_runtime.h>

#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_device.hpp"

namespace shardmark::device {
namespace {

class CudaCopyQueue final : public CopyQueue {
 public:
  explicit CudaCopyQueue(Device& device)
      : device_(device), ready_(device.make_event()), stream_(device.make_stream(Priority::normal)) {}
  CudaCopyQueue(const CudaCopyQueue&) = delete;
  CudaCopyQueue& operator=(const CudaCopyQueue&) = delete;
  ~CudaCopyQueue() override {
    static_cast<void>(cudaStreamSynchronize(stream()));
    for (void* data : pinned_) {
      static_cast<void>(cudaHostUnregister(data));
    }
  }

  void lend(void* data, std::size_t bytes) override {
    pinned_.reserve(pinned_.size() + 1);  // what is registered is noted, whatever fails
    check_cuda(cudaHostRegister(data, bytes, cudaHostRegisterDefault), "cudaHostRegister");
    pinned_.push_back(data);
  }
  void take_back(void* data) override {
    std::erase(pinned_, data);
    check_cuda(cudaHostUnregister(data), "cudaHostUnregister");
  }

  CopyTicket start(void* into, const void* from, std::size_t bytes) override {
    device_.compute().record(*ready_);
    stream_->wait(*ready_, {});
    check_cuda(cudaMemcpyAsync(into, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    if (free_.empty()) {
      free_.push_back(device_.make_event());
    }
    auto done = std::move(free_.back());
    free_.pop_back();
    stream_->record(*done);
    under_way_.push_back(std::move(done));
    return CopyTicket{first_ + under_way_.size() - 1};
  }

  /// Copies run in the order of their start: those before are complete, too.
  void wait(CopyTicket ticket) override {
    while (first_ <= static_cast<std::uint64_t>(ticket)) {
      auto& oldest = under_way_.front();
      while (!oldest->complete()) {
        std::this_thread::yield();
      }
      free_.push_back(std::move(oldest));
      under_way_.pop_front();
      ++first_;
    }
  }

 private:
  [[nodiscard]] cudaStream_t stream() { return static_cast<cudaStream_t>(stream_->handle()); }

  Device& device_;
  std::unique_ptr<Event> ready_;
  std::unique_ptr<Stream> stream_;
  std::deque<std::unique_ptr<Event>> under_way_;  // the front has ticket first_
  std::deque<std::unique_ptr<Event>> free_;
  std::uint64_t first_ = 0;
  std::vector<void*> pinned_;
};

}  // namespace

std::unique_ptr<CopyQueue> make_cuda_copy_queue(Device& device) {
  return std::make_unique<CudaCopyQueue>(device);
}

}  // namespace shardmark::device
