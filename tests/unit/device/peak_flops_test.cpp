// Peaks by name: the longest name that fits, and none for what nobody stated.

#include "device/peak_flops.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace shardmark::device {
namespace {

TEST(DevicePeak, IsThatOfTheNameAndType) {
  EXPECT_EQ(device_peak("NVIDIA H200", base::DType::bf16).flops_per_s, 989.5e12);
  EXPECT_EQ(device_peak("NVIDIA H200 NVL", base::DType::bf16).flops_per_s, 835.5e12);
  EXPECT_EQ(device_peak("NVIDIA A100-SXM4-80GB", base::DType::fp32).flops_per_s, 19.5e12);
  EXPECT_EQ(device_peak("NVIDIA H100 80GB HBM3", base::DType::fp32).flops_per_s, 67e12);
  EXPECT_EQ(device_peak("NVIDIA A10", base::DType::bf16).flops_per_s, 125e12);
}

TEST(DevicePeak, UnknownDevicesHaveNone) {
  for (const char* name : {"NVIDIA A1000", "AMD Instinct MI300X", "", "NVIDIA A100X"}) {
    const auto peak = device_peak(name, base::DType::bf16);
    EXPECT_TRUE(std::isnan(peak.flops_per_s)) << name;
    EXPECT_NE(peak.source.find("unknown device"), std::string::npos);
  }
}

}  // namespace
}  // namespace shardmark::device
