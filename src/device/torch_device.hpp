#pragma once
// A device as LibTorch names it.

#include <c10/core/Device.h>

#include "device/device.hpp"

namespace shardmark::device {

[[nodiscard]] inline c10::Device torch_device(const Device& device) {
  return device.cuda_index() < 0 ? c10::Device(c10::DeviceType::CPU)
                                 : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.cuda_index()));
}

}  // namespace shardmark::device
