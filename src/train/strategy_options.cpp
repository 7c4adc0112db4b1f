#include "train/strategy_options.hpp"

#include <cmath>
#include <string>

#include "device/copy_queue.hpp"
#ifdef SM_WITH_CUDA
#include "device/cuda_copy_queue.hpp"
#endif

namespace shardmark::train {
namespace {

base::DType dtype_of(const std::string& name) {
  return name == "bf16" ? base::DType::bf16 : base::DType::fp32;
}

constexpr double kMiB = 1024.0 * 1024.0;

/// What the technique's policy is made from; a key that nobody gave leaves the choice to the profile.
void fill_policy_options(const config::RunConfig& config, std::int64_t node_ranks, parallel::StrategyOptions& options) {
  const auto& technique = config.technique;
  const auto given = [&](const char* key) { return config.is_given(std::string("technique.") + key); };
  options.profile = technique.profile;
  if (technique.bucket_mb > 0) {
    options.bucket_bytes = static_cast<std::int64_t>(technique.bucket_mb * kMiB);
  }
  if (technique.prefetch > 0) {
    options.prefetch = technique.prefetch;
  }
  if (given("reshard_after_forward")) {
    const auto& [word, number] = technique.reshard_after_forward;
    options.after_forward = word == "true"    ? parallel::AfterForward::free
                            : word == "false" ? parallel::AfterForward::keep
                                              : parallel::AfterForward::keep_part;
    options.parts = number;
  }
  if (given("persistence_threshold")) {
    options.persistence_threshold = technique.persistence_threshold;
  }
  if (given("live_parameters_mb")) {
    // 0 is no limit; the smallest limit is not.
    options.live_bytes = static_cast<std::int64_t>(std::ceil(technique.live_parameters_mb * kMiB));
  }
  options.shard_group = technique.shard_group.word == "node" ? node_ranks : technique.shard_group.number;
}

}  // namespace

parallel::StrategyOptions strategy_options(const config::RunConfig& config, const config::BatchPlan& batch,
                                           std::int64_t node_ranks, base::FaultPlan& faults, device::Device* device) {
  parallel::StrategyOptions options;
  options.faults = &faults;
  options.device = device;
  options.order = config.numerics.reduction == "ordered" ? comm::SumOrder::ordered : comm::SumOrder::fast;
  options.micro_steps = batch.accumulation;
  options.no_sync = config.technique.accumulation == "no_sync";
  options.overlap = config.technique.overlap;
  options.allow_unused = config.technique.unused_parameters == "allow";
  options.decay_matrices_only = config.optimizer.decay == "matrices";
  options.seed = static_cast<std::uint64_t>(config.numerics.seed);
  options.precision.parameters = dtype_of(config.precision.parameters);
  options.precision.compute = dtype_of(config.precision.compute);
  options.precision.reduce = dtype_of(config.precision.reduce);
  options.precision.state = dtype_of(config.precision.state);
  options.precision.frozen = dtype_of(config.precision.frozen);
  options.precision.state_block = optim::state_block(config.optimizer.name);
  options.optimizer = {config.optimizer.name,  config.optimizer.betas.at(0),  config.optimizer.betas.at(1),
                       config.optimizer.eps,   config.optimizer.weight_decay, config.optimizer.momentum,
                       options.precision.state};
  options.optimizer.device = device;
  if (config.technique.offload == "optimizer") {
    options.optimizer.offload = device::make_host_copy_queue;
#ifdef SM_WITH_CUDA
    if (device != nullptr && device->cuda_index() >= 0) {
      options.optimizer.offload = [device] { return device::make_cuda_copy_queue(*device); };
    }
#endif
  }
  fill_policy_options(config, node_ranks, options);
  return options;
}

}  // namespace shardmark::train
