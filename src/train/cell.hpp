#pragma once
// Trains one configuration inside a world that goes on afterwards, and hands back what it computed: what proofs compare.

#include <functional>
#include <memory>
#include <vector>

#include "base/fault.hpp"
#include "comm/factory.hpp"
#include "config/run_config.hpp"
#include "train/trainer.hpp"
#include "train/workload.hpp"

namespace shardmark::train {

struct CellParts {
  const config::RunConfig& config;
  std::function<std::unique_ptr<Workload>(const config::RunConfig&)> make_workload;
  comm::CommunicatorStack& communication;
  base::FaultPlan& faults;
  std::int64_t node_ranks = 1;
  bool reverse_rows = false;  // see TrainerParts
};

struct CellResult {
  std::vector<double> losses;  // by step, of the global batch
  std::vector<double> grad_norms;
  std::vector<parallel::NamedTensor> gradients;   // of step 0, whole, before clipping; copies
  std::vector<parallel::NamedTensor> parameters;  // after the last step, whole; copies
  Outcome outcome;
};

/// Collective over the stack's ranks; the result is whole on every rank. Throws as Trainer::run and Strategy::prepare.
[[nodiscard]] CellResult run_cell(const CellParts& parts);

}  // namespace shardmark::train
