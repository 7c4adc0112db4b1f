#pragma once
// Copies between host memory and a CUDA device, on a stream of their own.

#include <memory>

#include "device/copy_queue.hpp"
#include "device/device.hpp"

namespace shardmark::device {

/// A copy starts after what the device computes so far; `wait` holds the host, and by it whatever is enqueued later. Host
/// memory that was not lent before is copied while `start` waits. The device is lent.
[[nodiscard]] std::unique_ptr<CopyQueue> make_cuda_copy_queue(Device& device);

}  // namespace shardmark::device
