#include "device/peak_flops.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>

namespace shardmark::device {
namespace {

struct Peak {
  std::string_view name;  // a part of the driver's name; the first that fits counts
  double bf16_tflops;     // tensor cores, without sparsity
  double fp32_tflops;
  std::string_view source;
};

// Data sheets give tensor core numbers with sparsity: half of them is meant here.
constexpr std::array<Peak, 11> kPeaks{{
    {"B200", 2250, 75, "NVIDIA HGX B200 data sheet, an eighth of a board"},
    {"H200 NVL", 835.5, 60, "NVIDIA H200 data sheet"},
    {"H200", 989.5, 67, "NVIDIA H200 data sheet"},
    {"GH200", 989.5, 67, "NVIDIA GH200 data sheet"},
    {"H100 NVL", 835.5, 60, "NVIDIA H100 data sheet"},
    {"H100 PCIe", 756, 51, "NVIDIA H100 PCIe data sheet"},
    {"H100", 989.5, 67, "NVIDIA H100 data sheet"},
    {"A100", 312, 19.5, "NVIDIA A100 data sheet"},
    {"A30", 165, 10.3, "NVIDIA A30 data sheet"},
    {"L40S", 362, 91.6, "NVIDIA L40S data sheet"},
    {"A10", 125, 31.2, "NVIDIA A10 data sheet"},
}};

}  // namespace

GemmPeak device_peak(std::string_view device_name, base::DType dtype) {
  for (const auto& peak : kPeaks) {
    const auto at = device_name.find(peak.name);
    // Not part of a longer word: "A10" is none of "A100".
    const auto end = at == std::string_view::npos ? at : at + peak.name.size();
    const bool whole =
        at != std::string_view::npos && (end == device_name.size() || device_name[end] == ' ' || device_name[end] == '-');
    if (whole) {
      const bool bf16 = dtype == base::DType::bf16;
      return {(bf16 ? peak.bf16_tflops : peak.fp32_tflops) * 1e12,
              fmt::format("{}, {} dense", peak.source, bf16 ? "bf16" : "fp32")};
    }
  }
  return {std::numeric_limits<double>::quiet_NaN(), fmt::format("unknown device {}", device_name)};
}

}  // namespace shardmark::device
