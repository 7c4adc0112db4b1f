#pragma once
// Named spans of a thread for NVIDIA's profilers (NVTX, header-only). Without a profiler a range costs less than 1 ns
// (bench_ranges: a loop with it 0.8 ns a turn, an empty one 0.3 ns, on one core at 2.6 GHz); in a build without CUDA it is
// nothing.

#if defined(SM_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define SM_HAS_NVTX 1
#endif

namespace shardmark::device {

/// From construction to destruction, on one thread; ranges of a thread nest.
class Range {
 public:
  /// `name` is copied by a profiler that is there.
#ifdef SM_HAS_NVTX
  explicit Range(const char* name) noexcept {
    static_cast<void>(nvtxRangePushA(name));
  }  // returns the depth
  ~Range() {
    static_cast<void>(nvtxRangePop());
  }
#else
  explicit Range(const char* /*name*/) noexcept {}
  ~Range() {}  // NOLINT: its own, or a range that nobody reads would be a warning
#endif
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace shardmark::device
