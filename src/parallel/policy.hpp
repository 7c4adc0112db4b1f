#pragma once
// What makes a technique: who keeps what, and when it is gathered and reduced. One engine obeys it (flat_strategy.hpp); each
// technique's own file says which policy it is.

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::parallel {

/// What happens to a gathered unit after its forward pass.
enum class AfterForward : std::uint8_t {
  free,       // gathered again for backward
  keep,       // kept whole until its backward is done
  keep_part,  // every rank keeps 1/k of it, gathered for backward within groups of k consecutive ranks
};

struct Policy {
  bool shard_parameters = false;
  bool shard_gradients = false;
  bool shard_state = false;
  /// After step 0, buckets are cut anew in the order in which gradients arrived.
  bool rebuild_buckets = false;

  /// All ranks: every group is padded to a multiple of alignment x ranks, whatever is sharded.
  std::int64_t ranks = 1;
  /// Ranks that share one copy: all of them, or a divisor of their number (hybrid: groups of consecutive ranks).
  std::int64_t shards = 1;
  AfterForward after_forward = AfterForward::free;
  std::int64_t parts = 1;  // k of keep_part
  /// The root unit is kept after forward whatever the others do.
  bool keep_root = false;
  /// A unit is kept after forward if fewer elements than this are used before backward comes to it; 0 = no such rule. What that
  /// means for a model `keep_for_reuse` says (group_plan.hpp).
  std::int64_t reuse_elements = 0;
  std::vector<bool> kept_units;  // by unit; empty: none
  [[nodiscard]] AfterForward after_forward_of(std::int64_t unit) const {
    const auto at = static_cast<std::size_t>(unit);
    const bool kept = (unit == 0 && keep_root) || (at < kept_units.size() && kept_units[at]);
    return kept ? AfterForward::keep : after_forward;
  }
  /// Units gathered ahead of use, at most this many and this many bytes (0 = no limit).
  std::int64_t prefetch = 1;
  std::int64_t prefetch_bytes = 0;
  /// Most bytes of gathered parameters at once; 0 = no limit.
  std::int64_t live_bytes = 0;
  /// Tensors below this many elements are not sharded.
  std::int64_t persistence_threshold = 0;
  /// Gradients of parameters that stay whole are reduced in buckets of this many bytes.
  std::int64_t bucket_bytes = 4 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
};

struct StrategyOptions;

/// The policy of one technique for `ranks` ranks. Throws base::ConfigError listing what the technique cannot do.
using MakePolicy = Policy (*)(const StrategyOptions& options, std::int64_t ranks);

[[nodiscard]] Policy single_policy(const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] Policy ddp_policy(const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] Policy zero1_policy(const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] Policy zero2_policy(const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] Policy zero3_policy(const StrategyOptions& options, std::int64_t ranks);
[[nodiscard]] Policy fsdp_policy(const StrategyOptions& options, std::int64_t ranks);

}  // namespace shardmark::parallel
