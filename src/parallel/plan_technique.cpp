#include "parallel/plan_technique.hpp"

#include <utility>

namespace shardmark::parallel {

std::vector<ParameterFacts> facts_of(const model::ParameterList& list) {
  std::vector<ParameterFacts> facts;
  for (const auto& parameter : list.parameters()) {
    facts.push_back({parameter.numel(), parameter.unit, parameter.trainable, parameter.behind_units});
  }
  return facts;
}

StepShape step_shape(const StrategyOptions& options, std::int64_t ranks, const optim::Optimizer& optimizer,
                     std::int64_t shard) {
  return {.micro_steps = options.micro_steps,
          .no_sync = options.no_sync,
          .ordered = options.order == comm::SumOrder::ordered,
          .ranks = ranks,
          .optimizer = &optimizer,
          .overlap = options.overlap,
          .allow_unused = options.allow_unused,
          .shard = shard};
}

TechniquePlan plan_technique(const std::string& technique, const StrategyOptions& options, const model::ParameterList& list,
                             std::int64_t ranks) {
  Policy policy = make_policy(technique, options, ranks);
  const auto facts = facts_of(list);
  const auto groups = plan_groups(facts, policy, options.precision.alignment());
  policy = keep_for_reuse(std::move(policy), facts, gathered_bytes_by_unit(groups, list.units().size(), options.precision));
  const auto visited = visited_by_backward(facts);
  const auto optimizer = optim::make_optimizer(options.optimizer);
  StepShape shape = step_shape(options, ranks, *optimizer, 0);
  TechniquePlan plan;
  // Where tensors of different sizes keep different states, shards differ: the largest counts.
  const std::int64_t shards = optimizer->small_below() > 0 ? policy.shards : 1;
  for (shape.shard = 0; shape.shard < shards; ++shape.shard) {
    const auto persistent = predicted_persistent(groups, policy, options.precision, shape);
    const auto states = [](const device::CategoryBytes& bytes) {
      return bytes[static_cast<std::size_t>(device::MemoryCategory::optimizer_state)] +
             bytes[static_cast<std::size_t>(device::MemoryCategory::offloaded)];
    };
    if (shape.shard == 0 || states(persistent) > states(plan.persistent)) {
      plan.persistent = persistent;
    }
  }
  plan.forward = plan.backward = plan.optimizer = plan.persistent;
  const auto transient = predicted_transient(groups, facts, list.units(), policy, options.precision, shape);
  plan.forward[static_cast<std::size_t>(device::MemoryCategory::gathered)] = transient.gathered_forward;
  plan.backward[static_cast<std::size_t>(device::MemoryCategory::gathered)] = transient.gathered_backward;
  plan.backward[static_cast<std::size_t>(device::MemoryCategory::buckets)] = transient.buckets;
  plan.payload_bytes = predicted_payload(groups, visited, policy, options.precision, shape);
  return plan;
}

}  // namespace shardmark::parallel
