#include "device/cpu_facts.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/clock.hpp"

namespace shardmark::device {

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
}

GemmPeak measure_gemm_peak() {
  constexpr std::int64_t kSize = 1024;
  constexpr int kRepeats = 6;
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor a = at::full({kSize, kSize}, 0.5F, options);
  const at::Tensor b = at::full({kSize, kSize}, 0.25F, options);
  at::Tensor c = at::empty({kSize, kSize}, options);
  double fastest_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const double start = base::now_s();
    at::mm_out(c, a, b);
    fastest_s = std::min(fastest_s, base::now_s() - start);
  }
  const double flops = 2.0 * kSize * kSize * kSize;
  return {flops / fastest_s, fmt::format("measured fp32 GEMM {0}x{0}x{0}, {1} thread(s)", kSize, at::get_num_threads())};
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      return colon == std::string::npos ? "unknown" : line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string cpu_set_text() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return "unknown";
  }
  std::string text;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) {
      continue;
    }
    std::size_t last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) {
      ++last;
    }
    if (!text.empty()) {
      text += ',';
    }
    text += last > cpu ? fmt::format("{}-{}", cpu, last) : fmt::format("{}", cpu);
    cpu = last;
  }
  return text;
}

}  // namespace shardmark::device
