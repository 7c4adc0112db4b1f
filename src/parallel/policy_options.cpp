#include "parallel/policy_options.hpp"

#include <algorithm>
#include <limits>

namespace shardmark::parallel {
namespace {

constexpr std::int64_t kDeepSpeedBucketElements = 500'000'000;
constexpr std::int64_t kDeepSpeedPrefetchElements = 50'000'000;
constexpr std::int64_t kDeepSpeedLiveElements = 1'000'000'000;
constexpr std::int64_t kDeepSpeedPersistence = 100'000;
constexpr std::int64_t kDeepSpeedReuseElements = 1'000'000'000;
constexpr std::int64_t kNativePrefetch = 1;

}  // namespace

void apply_bucket_options(const StrategyOptions& options, Policy& policy) {
  if (options.bucket_bytes) {
    policy.bucket_bytes = std::max<std::int64_t>(1, *options.bucket_bytes);
  } else if (options.profile == "deepspeed") {
    policy.bucket_bytes = policy.first_bucket_bytes = kDeepSpeedBucketElements * 4;
  }
}

void apply_gather_options(const StrategyOptions& options, Policy& policy) {
  policy.prefetch = kNativePrefetch;
  if (options.profile == "deepspeed") {
    const std::int64_t width = bytes_of(options.precision.compute);
    policy.prefetch = std::numeric_limits<std::int64_t>::max();
    policy.prefetch_bytes = kDeepSpeedPrefetchElements * width;
    policy.live_bytes = kDeepSpeedLiveElements * width;
    policy.persistence_threshold = kDeepSpeedPersistence;
    policy.reuse_elements = kDeepSpeedReuseElements;
  }
  if (options.prefetch) {
    policy.prefetch = *options.prefetch;
    policy.prefetch_bytes = 0;
  }
  policy.live_bytes = options.live_bytes.value_or(policy.live_bytes);
  policy.persistence_threshold = options.persistence_threshold.value_or(policy.persistence_threshold);
  if (!options.overlap) {
    policy.prefetch = 0;
  }
}

}  // namespace shardmark::parallel
