#include "parallel/bucket_peak.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace shardmark::parallel {
namespace {

/// What GradientFlow would hold: a bucket opens with its first gradient, or where gradients land elsewhere when its reduction
/// starts; it is gone when its reduction is complete.
class BackwardSimulation {
 public:
  BackwardSimulation(const std::vector<GroupPlan>& groups, const Policy& policy, const Precision& precision,
                     const StepShape& shape, bool opens_at_start)
      : groups_(groups),
        opens_at_start_(opens_at_start),
        overlap_(shape.overlap),
        flights_kept_(shape.ranks > 1 ? kMostFlights : 0),
        bucket_width_(bytes_of(precision.reduce)),
        // Across replicas a sum in order goes on in fp32: the owned part once more.
        part_width_(policy.shards < shape.ranks && shape.ordered && precision.reduce != base::DType::fp32 ? 4 : 0),
        shards_(policy.shards) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].trainable) {
        missing_.push_back(groups[g].layout.tensors.size());
        for (const auto& tensor : groups[g].layout.tensors) {
          group_of_[tensor.index] = g;
        }
      }
    }
    open_.resize(missing_.size(), false);
  }

  std::int64_t run() {
    for (std::size_t g = 0; g < missing_.size(); ++g) {
      if (groups_[g].unit == 0 && !opens_at_start_) {
        open(g);
      }
    }
    for (auto at = group_of_.rbegin(); at != group_of_.rend(); ++at) {
      if (!opens_at_start_) {
        open(at->second);
      }
      --missing_[at->second];
      if (overlap_) {
        start_complete();
      }
    }
    start_complete();
    return most_;
  }

 private:
  void open(std::size_t group) {
    if (!open_[group]) {
      open_[group] = true;
      hold(groups_[group].layout.numel() * bucket_width_);
    }
  }
  void start_complete() {
    for (; next_ < missing_.size() && missing_[next_] == 0; ++next_) {
      open(next_);
      hold(groups_[next_].layout.numel() / shards_ * part_width_);
      flights_.push_back(next_);
      while (flights_.size() > flights_kept_) {
        const std::int64_t numel = groups_[flights_.front()].layout.numel();
        hold(-(numel * bucket_width_ + numel / shards_ * part_width_));
        flights_.pop_front();
      }
    }
  }
  void hold(std::int64_t bytes) {
    held_ += bytes;
    most_ = std::max(most_, held_);
  }

  const std::vector<GroupPlan>& groups_;
  bool opens_at_start_;
  bool overlap_;
  std::size_t flights_kept_;
  std::int64_t bucket_width_;
  std::int64_t part_width_;
  std::int64_t shards_;
  std::map<std::int64_t, std::size_t> group_of_;  // by parameter
  std::vector<std::size_t> missing_;              // gradients still due, by group
  std::vector<bool> open_;
  std::deque<std::size_t> flights_;
  std::size_t next_ = 0;
  std::int64_t held_ = 0;
  std::int64_t most_ = 0;
};

}  // namespace

std::int64_t most_bucket_bytes(const std::vector<GroupPlan>& groups, const Policy& policy, const Precision& precision,
                               const StepShape& shape) {
  const bool reduced_once = shape.no_sync || shape.micro_steps == 1;
  const bool accumulates = shape.no_sync && shape.micro_steps > 1;
  const bool lands_in_gradient = reduced_once && (!policy.shard_gradients || accumulates);
  if (lands_in_gradient && precision.gradient(shape.micro_steps) == precision.reduce) {
    return 0;
  }
  return BackwardSimulation(groups, policy, precision, shape, lands_in_gradient).run();
}

}  // namespace shardmark::parallel
