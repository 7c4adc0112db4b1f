#include "parallel/bucket_peak.hpp"

#include <algorithm>
#include <deque>

namespace shardmark::parallel {
namespace {

/// What GradientFlow would hold: a bucket opens with its first gradient, or where gradients land elsewhere when its reduction
/// starts; it is gone when its reduction is complete. Gradients of one unit may come in any order.
class BackwardSimulation {
 public:
  BackwardSimulation(const std::vector<GroupPlan>& groups, const std::vector<ParameterFacts>& parameters, const Policy& policy,
                     const Precision& precision, const StepShape& shape, bool opens_at_start)
      : groups_(groups),
        parameters_(parameters),
        opens_at_start_(opens_at_start),
        overlap_(shape.overlap && !shape.allow_unused),
        flights_kept_(shape.ranks > 1 ? kMostFlights : 0),
        bucket_width_(bytes_of(precision.reduce)),
        // Across replicas a sum in order goes on in fp32: the owned part once more.
        part_width_(policy.shards < shape.ranks && shape.ordered && precision.reduce != base::DType::fp32 ? 4 : 0),
        shards_(policy.shards) {
    for (const auto& group : groups) {
      if (group.trainable) {
        missing_.push_back(group.layout.tensors.size());
      }
    }
    open_.resize(missing_.size(), false);
  }

  std::int64_t run() {
    std::int64_t last_unit = 0;
    for (const auto& parameter : parameters_) {
      last_unit = std::max(last_unit, parameter.unit);
    }
    const auto of_root = [](const ParameterFacts& parameter) { return parameter.unit == 0; };
    arrive(of_root, [](const ParameterFacts& parameter) { return parameter.unit == 0 && parameter.behind_units; });
    for (std::int64_t unit = last_unit; unit > 0; --unit) {
      const auto of_unit = [unit](const ParameterFacts& parameter) { return parameter.unit == unit; };
      arrive(of_unit, of_unit);
    }
    arrive(of_root, [](const ParameterFacts& parameter) { return parameter.unit == 0 && !parameter.behind_units; });
    start_complete();
    return most_;
  }

 private:
  /// Opens the groups of all tensors that `opens`, then completes those that `completes`.
  template <typename Opens, typename Completes>
  void arrive(const Opens& opens, const Completes& completes) {
    const auto count = [&](std::size_t group, const auto& wanted) {
      return std::ranges::count_if(groups_[group].layout.tensors, [&](const LayoutTensor& tensor) {
        return wanted(parameters_[static_cast<std::size_t>(tensor.index)]);
      });
    };
    for (std::size_t g = 0; g < missing_.size() && !opens_at_start_; ++g) {
      if (missing_[g] > 0 && count(g, opens) > 0) {
        open(g);
      }
    }
    for (std::size_t g = 0; g < missing_.size(); ++g) {
      missing_[g] -= static_cast<std::size_t>(count(g, completes));
    }
    if (overlap_) {
      start_complete();
    }
  }
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
  const std::vector<ParameterFacts>& parameters_;
  bool opens_at_start_;
  bool overlap_;
  std::size_t flights_kept_;
  std::int64_t bucket_width_;
  std::int64_t part_width_;
  std::int64_t shards_;
  std::vector<std::size_t> missing_;  // gradients still due, by group
  std::vector<bool> open_;
  std::deque<std::size_t> flights_;
  std::size_t next_ = 0;
  std::int64_t held_ = 0;
  std::int64_t most_ = 0;
};

}  // namespace

std::int64_t most_bucket_bytes(const std::vector<GroupPlan>& groups, const std::vector<ParameterFacts>& parameters,
                               const Policy& policy, const Precision& precision, const StepShape& shape) {
  const GradientRules rules = shape.rules();
  const bool lands_in_gradient = rules.reduced_once() && (!policy.shard_gradients || rules.accumulates());
  if (lands_in_gradient && precision.gradient(shape.micro_steps) == precision.reduce) {
    return 0;
  }
  return BackwardSimulation(groups, parameters, policy, precision, shape, lands_in_gradient).run();
}

}  // namespace shardmark::parallel
