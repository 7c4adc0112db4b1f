#include "parallel/plan_technique.hpp"

#include "parallel/predict.hpp"

namespace shardmark::parallel {

TechniquePlan plan_technique(const std::string& technique, const StrategyOptions& options, const model::ParameterList& list,
                             std::int64_t ranks) {
  const Policy policy = make_policy(technique, options, ranks);
  std::vector<ParameterFacts> facts;
  for (const auto& parameter : list.parameters()) {
    facts.push_back({parameter.numel(), parameter.unit, parameter.trainable, parameter.behind_units});
  }
  const auto groups = plan_groups(facts, policy, options.precision.alignment());
  const auto visited = visited_by_backward(facts);
  const StepShape shape{options.micro_steps,
                        options.no_sync,
                        options.order == comm::SumOrder::ordered,
                        ranks,
                        optim::make_optimizer(options.optimizer)->state_bytes_per_element(),
                        options.overlap};
  TechniquePlan plan;
  plan.persistent = plan.forward = plan.backward = plan.optimizer =
      predicted_persistent(groups, policy, options.precision, shape);
  const auto transient = predicted_transient(groups, visited, policy, options.precision, shape);
  plan.forward[static_cast<std::size_t>(device::MemoryCategory::gathered)] = transient.gathered_forward;
  plan.backward[static_cast<std::size_t>(device::MemoryCategory::gathered)] = transient.gathered_backward;
  plan.backward[static_cast<std::size_t>(device::MemoryCategory::buckets)] = transient.buckets;
  plan.payload_bytes = predicted_payload(groups, visited, policy, options.precision, shape);
  return plan;
}

}  // namespace shardmark::parallel
