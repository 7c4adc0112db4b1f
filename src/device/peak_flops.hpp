#pragma once
// Dense peaks of devices as their makers state them: what MFU is measured against on a device.

#include <string_view>

#include "base/dtype.hpp"
#include "device/cpu_facts.hpp"

namespace shardmark::device {

/// By the device's name as its driver has it. NaN and "unknown device" for one that is not in the table: no MFU is better than
/// one of a guess. fp32 is that of the plain units, as LibTorch computes unless told to use TF32.
[[nodiscard]] GemmPeak device_peak(std::string_view device_name, base::DType dtype);

}  // namespace shardmark::device
