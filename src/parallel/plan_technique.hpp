#pragma once
// What a technique would hold and move on a number of ranks, without any of them: the engine's own arithmetic on a model's
// declaration.

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory_ledger.hpp"
#include "model/parameter.hpp"
#include "parallel/predict.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {

/// What plans need to know of a model's declaration, and of a step by the options of a strategy on one of `ranks` ranks.
[[nodiscard]] std::vector<ParameterFacts> facts_of(const model::ParameterList& list);
[[nodiscard]] StepShape step_shape(const StrategyOptions& options, std::int64_t ranks, const optim::Optimizer& optimizer,
                                   std::int64_t shard);

/// Of one rank. Activations, workspace and what LibTorch keeps beside are not predicted.
struct TechniquePlan {
  device::CategoryBytes persistent{};
  device::CategoryBytes forward{};  // peaks in steady state
  device::CategoryBytes backward{};
  device::CategoryBytes optimizer{};
  double payload_bytes = 0;  // gradients and parameters sent in an optimizer step, nominal
};

/// Throws base::ConfigError as make_strategy does.
[[nodiscard]] TechniquePlan plan_technique(const std::string& technique, const StrategyOptions& options,
                                           const model::ParameterList& list, std::int64_t ranks);

}  // namespace shardmark::parallel
