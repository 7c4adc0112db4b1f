#pragma once
// What the host is and how fast its matrix product runs: the peak that MFU is measured against on a CPU.

#include <string>

namespace shardmark::device {

struct GemmPeak {
  double flops_per_s = 0;  // 2 x m x n x k / fastest time
  std::string source;      // "measured fp32 GEMM 1024^3, 1 thread"
};

/// One thread a rank: LibTorch would start one per core in every rank.
void set_compute_threads(int threads);

/// Times square fp32 products on this rank's threads and returns the fastest. Local; about a tenth of a second.
[[nodiscard]] GemmPeak measure_gemm_peak();

/// Processor model, e.g. from /proc/cpuinfo.
[[nodiscard]] std::string cpu_model_name();
/// The processors this process may run on, as a list like "0-3,8".
[[nodiscard]] std::string cpu_set_text();

}  // namespace shardmark::device
