// Stands in for libcuda.so.1: two devices that reach each other, or what SM_STAND_IN_CUDA asks for: "none" (no device visible),
// "broken" (cuInit fails), "apart" (no direct access), "silent" (the second device does not answer), "old" (CUDA 12.4).

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

bool is(std::string_view what) {
  const char* const mode = std::getenv("SM_STAND_IN_CUDA");
  return mode != nullptr && what == mode;
}

}  // namespace

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = is("old") ? 12040 : 13000;
  return 0;
}
int cuInit(unsigned) {
  return is("none") ? 100 : is("broken") ? 802 : 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 7;  // a handle is no ordinal
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in %c", device == 7 ? 'A' : 'B');
  return is("silent") && device == 8 ? 999 : 0;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  std::memset(uuid, device == 7 ? 0xaa : 0xbb, 16);
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  *bytes = std::size_t{device == 7 ? 80U : 40U} << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? (device == 7 ? 9 : 8) : attribute == 76 ? 0 : -1;
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "00FF:%s:00.0", device == 7 ? "3B" : "5E");
  return 0;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = is("apart") ? 0 : 1;
  return device < 7 || peer < 7 ? 101 : 0;
}

}  // extern "C"
