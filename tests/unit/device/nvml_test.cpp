// NVML through stand-ins for its library: what a device tells, what it refuses, what an old library lacks, no library.

#include "device/nvml.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace shardmark::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFolder = SM_STAND_INS;
const std::string kNvml = kFolder + "/stand_in_nvml/libnvidia-ml.so.1";
const std::string kA = "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
const std::string kB = "GPU-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

std::map<std::string, std::int64_t> counters_of(NvmlDevice& device) {
  std::map<std::string, std::int64_t> counters;
  for (const auto& [name, value] : device.health()) {
    counters[name] = value;
  }
  return counters;
}

TEST(NvmlTest, ADeviceThatTellsEverything) {
  const Nvml nvml(kNvml);
  ASSERT_TRUE(nvml.available()) << nvml.problem();
  EXPECT_EQ(nvml.problem(), "");
  EXPECT_EQ(nvml.driver_version(), "580.82.07");
  auto device = nvml.find(kA);
  ASSERT_TRUE(device);
  const auto reading = device->read();
  EXPECT_DOUBLE_EQ(reading.power_w, 612.345);
  EXPECT_EQ(reading.sm_clock_mhz, 1830);
  EXPECT_EQ(reading.memory_clock_mhz, 3201);
  EXPECT_EQ(reading.temperature_c, 61);
  EXPECT_EQ(reading.throttle, 4);
  const double before = device->energy_j();
  EXPECT_NEAR(device->energy_j() - before, 2.5, 1e-9) << "2500 mJ; doubles near 1000 are 1e-13 apart";
  const auto limits = device->limits();
  EXPECT_EQ(limits.max_sm_clock_mhz, 1980);
  EXPECT_EQ(limits.max_memory_clock_mhz, 3202);
  EXPECT_EQ(limits.power_limit_w, 700);
  EXPECT_EQ(limits.total_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(limits.used_bytes, std::int64_t{1} << 30);
  auto counters = counters_of(*device);
  EXPECT_EQ(counters.size(), 10U);
  EXPECT_EQ(counters["ecc_corrected"], 5);
  EXPECT_EQ(counters["ecc_uncorrected"], 1);
  EXPECT_EQ(counters["rows_remapped_corrected"], 2);
  EXPECT_EQ(counters["rows_remapped_uncorrected"], 1);
  EXPECT_EQ(counters["row_remap_pending"], 1);
  EXPECT_EQ(counters["row_remap_failed"], 0);
  EXPECT_EQ(counters["pcie_replay"], 3);
  // Links 0 and 17 tell; link 1 is up and does not, the others are down.
  EXPECT_EQ(counters["nvlink_replay"], 17);
  EXPECT_EQ(counters["nvlink_recovery"], 2 * 100 + 17);
  EXPECT_EQ(counters["nvlink_crc"], 2 * 200 + 17 + 2 * 300 + 17);
}

TEST(NvmlTest, WhatADeviceRefusesIsMissing) {
  const Nvml nvml(kNvml);
  auto device = nvml.find(kB);
  ASSERT_TRUE(device);
  const auto reading = device->read();
  EXPECT_TRUE(std::isnan(reading.power_w)) << "the call failed";
  EXPECT_TRUE(std::isnan(device->energy_j())) << "not supported";
  EXPECT_EQ(reading.temperature_c, 45) << "told beside it";
  EXPECT_TRUE(std::isnan(device->limits().power_limit_w));
  auto counters = counters_of(*device);
  EXPECT_EQ(counters["ecc_corrected"], -1);
  EXPECT_EQ(counters["nvlink_replay"], -1);
  EXPECT_EQ(counters["nvlink_crc"], -1);
  EXPECT_EQ(counters["pcie_replay"], -1);
  EXPECT_EQ(counters["rows_remapped_corrected"], 2);
}

TEST(NvmlTest, AMigInstanceIsFoundByTheUuidThatCudaWrites) {
  const Nvml nvml(kNvml);
  auto instance = nvml.find("GPU-cccccccc-cccc-cccc-cccc-cccccccccccc");
  ASSERT_TRUE(instance);
  EXPECT_TRUE(std::isnan(instance->read().sm_clock_mhz));
  EXPECT_FALSE(nvml.find("GPU-dddddddd-dddd-dddd-dddd-dddddddddddd"));
  EXPECT_FALSE(nvml.find(""));
}

TEST(NvmlTest, AnOldLibraryLacksFunctions) {
  const Nvml nvml(kFolder + "/stand_in_nvml_old/libnvidia-ml.so.1");
  auto device = nvml.find(kA);
  ASSERT_TRUE(device) << nvml.problem();
  EXPECT_TRUE(std::isnan(device->energy_j()));
  EXPECT_EQ(device->read().throttle, 0x40) << "under the function's older name";
  EXPECT_EQ(counters_of(*device)["row_remap_pending"], -1);
}

TEST(NvmlTest, ALibraryThatIsMissingOrRefusesSaysSo) {
  const Nvml missing("libno-such-nvml.so.1");
  EXPECT_FALSE(missing.available());
  EXPECT_THAT(missing.problem(), HasSubstr("libno-such-nvml.so.1"));
  EXPECT_FALSE(missing.find(kA));
  EXPECT_EQ(missing.driver_version(), "");
  const Nvml refusing(kFolder + "/stand_in_nvml_refusing/libnvidia-ml.so.1");
  EXPECT_FALSE(refusing.available());
  EXPECT_EQ(refusing.problem(), "nvmlInit_v2 returned 9 (Driver Not Loaded)");
  const Nvml other(kFolder + "/stand_in_cuda/libcuda.so.1");
  EXPECT_THAT(other.problem(), HasSubstr("is no NVML"));
}

TEST(NvmlTest, ADeviceKeepsTheLibraryLoaded) {
  auto device = Nvml(kNvml).find(kA);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->read().temperature_c, 61);
  void* const loaded = dlopen(kNvml.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(loaded, nullptr);
  dlclose(loaded);
  device.reset();
  EXPECT_EQ(dlopen(kNvml.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << "the last one closes it";
}

TEST(ThrottleNames, ByBit) {
  EXPECT_THAT(throttle_names(0), IsEmpty());
  EXPECT_THAT(throttle_names(-1), IsEmpty()) << "not told";
  EXPECT_THAT(throttle_names(0x1 | 0x4 | 0x40 | 0x100),
              ElementsAre("idle", "sw_power_cap", "hw_thermal_slowdown", "display_clocks"));
  EXPECT_THAT(throttle_names(0x1000), ElementsAre("bit 12"));
}

}  // namespace
}  // namespace shardmark::device
