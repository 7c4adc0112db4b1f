// Stands in for libnvidia-ml.so.1: device A tells everything, B refuses some and fails others, C is a MIG instance. Compiled
// with SM_STAND_IN_OLD it lacks functions, as an old driver's does; with SM_STAND_IN_CODE nvmlInit_v2 returns that.

#include <cstdio>
#include <string_view>

namespace {

constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kLost = 15;
char a, b, c;  // their addresses are the handles

bool is(void* device, const char& which) {
  return device == &which;
}
int initialised = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
#ifdef SM_STAND_IN_CODE
  return SM_STAND_IN_CODE;
#else
  ++initialised;
  return 0;
#endif
}
int nvmlShutdown() {
  --initialised;
  return 0;
}
const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "?";
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.82.07");
  return initialised > 0 ? 0 : 1;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::string_view asked(uuid);
  if (initialised <= 0) {
    return 1;
  }
  if (asked == "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa") {
    *device = &a;
  } else if (asked == "GPU-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb") {
    *device = &b;
  } else if (asked == "MIG-cccccccc-cccc-cccc-cccc-cccccccccccc") {
    *device = &c;
  } else {
    return kNotFound;
  }
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 612345;
  return is(device, a) ? 0 : is(device, b) ? kLost : kNotSupported;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700000;
  return is(device, a) ? 0 : kNotSupported;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1830 : type == 2 ? 3201 : 1;
  return is(device, c) ? kNotSupported : 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : type == 2 ? 3202 : 1;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  *celsius = is(device, a) ? 61 : 45;
  return sensor == 0 ? 0 : kNotSupported;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 80ULL << 30;
  total_free_used[1] = 79ULL << 30;
  total_free_used[2] = 1ULL << 30;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* errors) {
  *errors = kind == 0 ? 5 : 1;
  return is(device, a) && counter == 0 ? 0 : kNotSupported;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  *active = link < 2 || link == 17 ? 1 : 0;
  return is(device, a) ? 0 : kNotSupported;
}
int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned link, int counter, unsigned long long* errors) {
  *errors = 100ULL * static_cast<unsigned>(counter) + link;
  return link == 1 ? kNotSupported : 0;
}
int nvmlDeviceGetPcieReplayCounter(void* device, unsigned* replays) {
  *replays = 3;
  return is(device, a) ? 0 : kLost;
}

#ifdef SM_STAND_IN_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* mask) {
  *mask = 0x40;
  return 0;
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* mask) {
  *mask = 0x4;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  static unsigned long long used = 1'000'000;
  used += 2500;
  *millijoules = used;
  return is(device, a) ? 0 : kNotSupported;
}
int nvmlDeviceGetRemappedRows(void*, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  *corrected = 2;
  *uncorrected = 1;
  *pending = 1;
  *failed = 0;
  return 0;
}
#endif

}  // extern "C"
