#include "train/cell.hpp"

#include "device/memory_ledger.hpp"
#include "device/torch_device.hpp"
#include "metrics/recorder.hpp"
#include "train/export.hpp"
#include "train/strategy_options.hpp"

namespace shardmark::train {
namespace {

/// Copies that outlive the strategy, whose buffers the tensors may be.
std::vector<parallel::NamedTensor> copies(const std::vector<parallel::NamedTensor>& tensors) {
  const device::MemoryScope scope(device::MemoryCategory::other);
  std::vector<parallel::NamedTensor> kept;
  for (const auto& tensor : tensors) {
    kept.push_back({tensor.name, tensor.values.detach().clone()});
  }
  return kept;
}

}  // namespace

CellResult run_cell(const CellParts& parts) {
  auto& communicator = parts.communication.communicator();
  const auto batch = config::resolve_batch(parts.config, communicator.size());
  const auto workload = parts.make_workload(parts.config);
  workload->set_device(device::torch_device(parts.communication.device()));
  const auto initial = open_checkpoints(weight_folders(parts.config), workload->parameters());
  const auto strategy = parallel::make_strategy(
      parts.config.technique.name,
      strategy_options(parts.config, batch, parts.node_ranks, parts.faults, &parts.communication.device()), communicator);
  strategy->prepare(workload->parameters(), initial);
  parts.communication.counts().reset();
  device::reset_memory_peaks();  // what other cells held is not this one's
  metrics::Recorder recorder(communicator, nullptr);
  CellResult result;
  TrainerParts trainer_parts{parts.config, batch, *workload, *strategy, parts.communication, recorder, parts.faults};
  trainer_parts.quiet = true;
  trainer_parts.reverse_rows = parts.reverse_rows;
  trainer_parts.on_first_gradients = [&](parallel::Strategy& trained) {
    result.gradients = copies(trained.gather_gradients());
  };
  trainer_parts.on_step = [&](double loss, double grad_norm) {
    result.losses.push_back(loss);
    result.grad_norms.push_back(grad_norm);
  };
  result.outcome = Trainer(std::move(trainer_parts)).run();
  result.parameters = copies(strategy->gather_parameters());
  return result;
}

}  // namespace shardmark::train
