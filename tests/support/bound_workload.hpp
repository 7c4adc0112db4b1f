#pragma once
// A workload with first values in its parameters, for tests that train without a strategy.

#include <memory>
#include <utility>

#include "workloads/table.hpp"

namespace shardmark::testing {

[[nodiscard]] inline std::unique_ptr<train::Workload> make_bound(const config::RunConfig& config) {
  auto workload = workloads::make_workload(config);
  for (auto& parameter : workload->parameters().parameters()) {
    parameter.value = at::empty(parameter.shape, at::kFloat);
    model::fill_initial({parameter.value.data_ptr<float>(), static_cast<std::size_t>(parameter.numel())}, parameter.init, 3,
                        parameter.name, 0);
    parameter.value.requires_grad_();
  }
  return workload;
}

}  // namespace shardmark::testing
